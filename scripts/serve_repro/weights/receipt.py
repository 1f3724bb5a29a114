"""Proof that one node has exactly a manifest's bytes, and its cheap re-check by file status."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from serve_repro.errors import UserError
from serve_repro.weights.manifest import files_of, hash_files


def verify(manifest: dict[str, Any], node: str) -> dict[str, Any]:
    """Hash every file on this node and compare; returns the receipt.

    Raises:
        UserError: names node, file, both values: missing, extra, unreadable, short, long or wrong bytes.
    """
    folder = Path(manifest["folder"])
    wanted = {entry["path"]: entry for entry in manifest["files"]}
    here = files_of(folder)
    names = {str(path) for path in here}
    for name in sorted(wanted.keys() | names):
        where = f"node {node}: {folder / name}"
        if name not in names:
            raise UserError("file is missing", where=where, expected=f"{wanted[name]['bytes']} bytes")
        if name not in wanted:
            raise UserError("file is extra: the manifest does not list it", where=where)
        try:
            size = (folder / name).stat().st_size
        except OSError as error:  # a link into the hub's blobs that leads nowhere on this node
            raise UserError(f"file cannot be read ({error.strerror})", where=where) from error
        if size != wanted[name]["bytes"]:
            word = "short" if size < wanted[name]["bytes"] else "long"
            raise UserError(
                f"file is too {word}",
                where=where,
                expected=f"{wanted[name]['bytes']} bytes",
                found=f"{size} bytes",
            )
    hashes = hash_files(folder, here, f"node {node}: {manifest['model']}")
    for name, entry in wanted.items():
        if hashes[name] != entry["sha256"]:
            raise UserError(
                "file has the right size and wrong bytes",
                where=f"node {node}: {folder / name}",
                expected=f"sha256 {entry['sha256']}",
                found=f"sha256 {hashes[name]}",
                remedy="fetch this file again; then only verification and what follows is redone",
            )
    return {
        "model": manifest["model"],
        "node": node,
        "digest": manifest["digest"],
        "folder": manifest["folder"],
        "files": [_status(folder, name) | {"sha256": hashes[name]} for name in sorted(wanted)],
    }


def recheck(receipt: dict[str, Any]) -> None:
    """Compare size, time and inode of every file with the receipt: milliseconds when nothing moved.

    A file whose status differs (a copied or restored folder) is hashed again: only bytes decide.

    Raises:
        UserError: a file is gone, or its bytes are no longer the receipt's.
    """
    folder = Path(receipt["folder"])
    moved = [entry for entry in receipt["files"] if not _as_before(folder, entry)]
    hashes = hash_files(folder, [Path(entry["path"]) for entry in moved], receipt["model"])
    for entry in moved:
        if hashes[entry["path"]] != entry["sha256"]:
            raise UserError(
                "file changed after it was verified",
                where=f"node {receipt['node']}: {folder / entry['path']}",
                expected=f"sha256 {entry['sha256']}",
                found=f"sha256 {hashes[entry['path']]}",
                remedy="restore the file, or resolve again: snakemake ... -R resolve_weights",
            )


def _as_before(folder: Path, entry: dict[str, Any]) -> bool:
    try:
        now = _status(folder, entry["path"])
    except OSError:
        return False
    return all(entry[key] == value for key, value in now.items())


def _status(folder: Path, name: str) -> dict[str, Any]:
    status = (folder / name).stat()
    return {
        "path": name,
        "bytes": status.st_size,
        "mtime_ns": status.st_mtime_ns,
        "inode": status.st_ino,
    }
