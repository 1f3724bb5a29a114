"""Proof that one node has exactly a manifest's bytes, and its cheap re-check by file status."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from serve_repro.errors import UserError
from serve_repro.weights.manifest import files_of, hash_files


def verify(manifest: dict[str, Any], node: str) -> dict[str, Any]:
    """Hash every file on this node and compare; returns the receipt.

    Raises:
        UserError: every fault, each with node, file and both values: missing, extra, unreadable, short,
            long, wrong bytes.
    """
    folder = Path(manifest["folder"])
    wanted = {entry["path"]: entry for entry in manifest["files"]}
    names = {str(path) for path in files_of(folder)}
    faults = [
        UserError("file is missing", where=f"{folder / name}", expected=f"{wanted[name]['bytes']} bytes")
        for name in sorted(wanted.keys() - names)
    ]
    faults += [
        UserError("file is extra: the manifest does not list it", where=f"{folder / name}")
        for name in sorted(names - wanted.keys())
    ]
    sizes = {name: _fault_of_size(folder, wanted[name]) for name in sorted(wanted.keys() & names)}
    faults += [fault for fault in sizes.values() if fault is not None]
    sound = [Path(name) for name, fault in sizes.items() if fault is None]
    hashes = hash_files(folder, sound, f"node {node}: {manifest['model']}")
    faults += [
        UserError(
            "file has the right size and wrong bytes",
            where=f"{folder / name}",
            expected=f"sha256 {wanted[name]['sha256']}",
            found=f"sha256 {found}",
            remedy="fetch this file again; then only verification and what follows is redone",
        )
        for name, found in sorted(hashes.items())
        if found != wanted[name]["sha256"]
    ]
    if faults:
        # All of them: whoever repairs a copy of a terabyte wants to know the whole damage first.
        raise UserError("\n".join(f"node {node}: {fault}" for fault in faults))
    return {
        "model": manifest["model"],
        "node": node,
        "digest": manifest["digest"],
        "folder": manifest["folder"],
        "mount": manifest["mount"],
        "files": [_status(folder, name) | {"sha256": hashes[name]} for name in sorted(wanted)],
    }


def _fault_of_size(folder: Path, entry: dict[str, Any]) -> UserError | None:
    """What a look at the file's status tells, before its bytes are read."""
    where = f"{folder / entry['path']}"
    try:
        size = (folder / entry["path"]).stat().st_size
    except OSError as error:  # a link into the hub's blobs that leads nowhere on this node
        return UserError(f"file cannot be read ({error.strerror})", where=where)
    if size == entry["bytes"]:
        return None
    return UserError(
        f"file is too {'short' if size < entry['bytes'] else 'long'}",
        where=where,
        expected=f"{entry['bytes']} bytes",
        found=f"{size} bytes",
    )


def recheck(receipt: dict[str, Any]) -> None:
    """Compare size, time and inode of every file with the receipt: milliseconds when nothing moved.

    A file whose status differs (a copied or restored folder) is hashed again: only bytes decide.

    Raises:
        UserError: a file is gone, or its bytes are no longer the receipt's.
    """
    folder = Path(receipt["folder"])
    moved = [entry for entry in receipt["files"] if not _as_before(folder, entry)]
    for entry in moved:
        if not (folder / entry["path"]).is_file():
            raise UserError(
                "file is gone since it was verified",
                where=f"node {receipt['node']}: {folder / entry['path']}",
                expected=f"{entry['bytes']} bytes",
                remedy="restore the file, or resolve again: snakemake ... -R resolve_weights",
            )
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
