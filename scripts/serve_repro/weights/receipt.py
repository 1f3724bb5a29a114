"""Proof that one node has exactly a manifest's bytes, and its cheap re-check by file status."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from serve_repro.errors import UserError
from serve_repro.weights import faults
from serve_repro.weights.hashing import hash_files
from serve_repro.weights.locate import snapshots_of
from serve_repro.weights.manifest import files_of
from serve_repro.weights.origin import revisions_noted

REMEDY = "restore the file, or resolve again: snakemake ... -R resolve_weights"


def verify(manifest: dict[str, Any], node: str) -> dict[str, Any]:
    """Hash every file on this node and compare; returns the receipt.

    Raises:
        UserError: every fault, each with node, file and both values: wrong revision, missing, extra,
            dangling link, unreadable, short, long, wrong bytes.
    """
    folder = Path(manifest["folder"])
    wanted = {entry["path"]: entry for entry in manifest["files"]}
    found = _faults_of_place(manifest)
    if folder.is_dir():
        names = {str(path) for path in files_of(folder)}
        found += [
            UserError(
                "file is missing",
                where=f"{folder / name}",
                expected=f"{wanted[name]['bytes']} bytes",
                found="no such file",
                remedy=faults.AGAIN,
            )
            for name in sorted(wanted.keys() - names)
        ]
        found += [
            UserError(
                "file is extra",
                where=f"{folder / name}",
                expected=f"the manifest's {len(wanted)} files",
                found="one more",
                remedy="remove it, or resolve again: snakemake ... -R resolve_weights",
            )
            for name in sorted(names - wanted.keys())
        ]
        sizes = {name: _fault_of_size(folder, wanted[name]) for name in sorted(wanted.keys() & names)}
        found += [fault for fault in sizes.values() if fault is not None]
        sound = [Path(name) for name, fault in sizes.items() if fault is None]
        hashed = hash_files(folder, sound, f"node {node}: {manifest['model']}")
        found += [
            faults.cannot_be_read(folder / name, error) for name, error in sorted(hashed.failed.items())
        ]
        found += [
            faults.wrong_bytes(folder / name, f"sha256 {wanted[name]['sha256']}", f"sha256 {value}")
            for name, value in sorted(hashed.hashes.items())
            if value != wanted[name]["sha256"]
        ]
    if found:
        # All of them: whoever repairs a copy of a terabyte wants to know the whole damage first.
        raise UserError("\n".join(f"node {node}: {fault}" for fault in found))
    return {
        "model": manifest["model"],
        "node": node,
        "proven_on": node,
        "digest": manifest["digest"],
        "folder": manifest["folder"],
        "mount": manifest["mount"],
        "files": [_status(folder, name) | {"sha256": hashed.hashes[name]} for name in sorted(wanted)],
    }


def accept(manifest: dict[str, Any], node: str, other: dict[str, Any]) -> dict[str, Any] | None:
    """Another node's receipt as this node's, where both see one file system; None if it does not fit.

    It fits if the site says that the folder is shared, the bytes proven are the manifest's, and this
    node sees the same names, sizes, times and inodes.
    """
    folder = Path(manifest["folder"])
    names = {entry["path"] for entry in other["files"]}
    fits = (
        manifest["shared"]
        and (other["model"], other["digest"]) == (manifest["model"], manifest["digest"])
        and other["folder"] == manifest["folder"]
        and folder.is_dir()
        and {str(path) for path in files_of(folder)} == names
        and all(_as_before(folder, entry) for entry in other["files"])
    )
    return other | {"node": node} if fits else None


def _faults_of_place(manifest: dict[str, Any]) -> list[UserError]:
    """What the folder itself tells on this node: not there, or another revision."""
    folder, wanted = Path(manifest["folder"]), manifest["revision"]
    if not folder.is_dir():
        if manifest["layout"] == "hub":
            have = snapshots_of(Path(manifest["mount"]))
            return [_wrong_revision(folder, wanted, ", ".join(have) or "no snapshot")]
        return [UserError("folder is missing", where=str(folder), expected="a folder", found="none")]
    told = revisions_noted(folder) if manifest["layout"] == "plain" else set()
    if wanted is not None and told - {wanted}:
        return [_wrong_revision(folder, wanted, ", ".join(sorted(told)))]
    return []


def _wrong_revision(folder: Path, wanted: str, found: str) -> UserError:
    return UserError(
        "wrong revision",
        where=str(folder),
        expected=f"revision {wanted}",
        found=found,
        remedy="fetch the expected revision on this node",
    )


def _fault_of_size(folder: Path, entry: dict[str, Any]) -> UserError | None:
    """What a look at the file's status tells, before its bytes are read."""
    path = folder / entry["path"]
    try:
        size = path.stat().st_size
    except OSError as error:
        return faults.cannot_be_read(path, error)
    return None if size == entry["bytes"] else faults.wrong_size(path, entry["bytes"], size)


def recheck(receipt: dict[str, Any]) -> None:
    """Compare size, time and inode of every file with the receipt: milliseconds when nothing moved.

    A file whose status differs (a copied or restored folder) is hashed again: only bytes decide.

    Raises:
        UserError: a file is gone or cannot be read, or its bytes are no longer the receipt's.
    """
    folder = Path(receipt["folder"])
    moved = [entry for entry in receipt["files"] if not _as_before(folder, entry)]
    for entry in moved:
        if not (folder / entry["path"]).is_file():
            raise UserError(
                "file is gone since it was verified",
                where=f"node {receipt['node']}: {folder / entry['path']}",
                expected=f"{entry['bytes']} bytes",
                remedy=REMEDY,
            )
    hashed = hash_files(folder, [Path(entry["path"]) for entry in moved], receipt["model"])
    for name, error in sorted(hashed.failed.items()):
        fault = faults.cannot_be_read(folder / name, error)
        raise UserError(f"node {receipt['node']}: {fault}") from error
    for entry in moved:
        if hashed.hashes[entry["path"]] != entry["sha256"]:
            raise UserError(
                "file changed after it was verified",
                where=f"node {receipt['node']}: {folder / entry['path']}",
                expected=f"sha256 {entry['sha256']}",
                found=f"sha256 {hashed.hashes[entry['path']]}",
                remedy=REMEDY,
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
