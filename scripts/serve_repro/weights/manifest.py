"""The list of a model's files with sizes and hashes, and whether it is complete."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from serve_repro.documents import digest, read_json
from serve_repro.errors import UserError
from serve_repro.weights import faults, origin
from serve_repro.weights.hashing import hash_files
from serve_repro.weights.header import check_header
from serve_repro.weights.locate import Found

INDEX = "model.safetensors.index.json"


def files_of(folder: Path) -> list[Path]:
    """Every file below a model's folder, relative to it; hidden folders (caches) do not count."""
    found = [path.relative_to(folder) for path in folder.rglob("*") if not path.is_dir()]
    return sorted(path for path in found if not any(part.startswith(".") for part in path.parts))


def check_complete(folder: Path, files: list[Path]) -> None:
    """Every shard that the index names is there and whole, and there are weights at all.

    Raises:
        UserError: names the shard or says that there are no weights.
    """
    names = {str(path) for path in files}
    if INDEX in names:
        wanted = set(read_json(folder / INDEX)["weight_map"].values())
        lost = sorted(wanted - names)
        if lost:
            raise UserError(
                "the index names shards that are not there",
                where=str(folder / INDEX),
                expected=f"{len(wanted)} shards",
                found=f"missing {', '.join(lost)}",
            )
    elif not any(name.endswith(".safetensors") for name in names):
        raise UserError("no safetensors file here", where=str(folder))
    for path in files:
        try:
            (folder / path).stat()
            if path.suffix == ".safetensors":
                check_header(folder / path)
        except OSError as error:
            raise faults.cannot_be_read(folder / path, error) from error


def manifest(model_id: str, found: Found, *, shared: bool = False) -> dict[str, Any]:
    """All of a model's files, with what their bytes must be.

    Where the hub's client left the hub's sha256 of a file, that is what is expected, and nothing is
    read here: verification reads every byte on each node. Other files are hashed once.

    Args:
        model_id: the model.
        found: where it is.
        shared: whether the site says that all nodes see this folder as one.

    Returns:
        {model, layout, revision, folder, mount, shared, files: [{path, bytes, sha256, source}], digest}
        with source "hub" or "first seen". The digest is of the files' names, sizes and hashes alone.

    Raises:
        UserError: incomplete, unreadable, or other bytes than the hub's.
    """
    files = files_of(found.folder)
    check_complete(found.folder, files)
    etags = {path: origin.etag_of(found.folder, path) or "" for path in files}
    told = {path: etag for path, etag in etags.items() if origin.SHA256.fullmatch(etag)}
    hashed = hash_files(found.folder, [path for path in files if path not in told], model_id)
    for name, error in sorted(hashed.failed.items()):
        raise faults.cannot_be_read(found.folder / name, error) from error
    listed = [
        {
            "path": str(path),
            "bytes": (found.folder / path).stat().st_size,
            "sha256": told.get(path) or hashed.hashes[str(path)],
            "source": _source(found.folder / path, etags[path]),
        }
        for path in files
    ]
    contents = [{key: entry[key] for key in ("path", "bytes", "sha256")} for entry in listed]
    return {
        "model": model_id,
        "layout": found.layout,
        "revision": found.revision,
        "folder": str(found.folder),
        "mount": str(found.mount),
        "shared": shared,
        "files": listed,
        "digest": f"sha256:{digest(contents)}",
    }


def _source(path: Path, etag: str) -> str:
    """Whose word the hash of a file is."""
    if origin.SHA256.fullmatch(etag):
        return "hub"
    if not origin.GIT.fullmatch(etag):
        return "first seen"
    found = origin.git_hash(path)
    if found != etag:
        raise faults.wrong_bytes(path, f"git blob {etag} (the hub's)", f"git blob {found}")
    return "hub"
