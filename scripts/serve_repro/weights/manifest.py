"""The list of a model's files with sizes and hashes, and whether it is complete."""

from __future__ import annotations

import logging
import os
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from serve_repro.documents import digest, file_sha256, read_json
from serve_repro.errors import UserError
from serve_repro.weights.header import check_header
from serve_repro.weights.locate import Found

LOGGER = logging.getLogger("serve_repro")
INDEX = "model.safetensors.index.json"
PROGRESS_S = 5.0


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
        if path.suffix == ".safetensors":
            try:
                check_header(folder / path)
            except OSError as error:
                raise UserError(
                    f"cannot be read ({error.strerror})", where=str(folder / path)
                ) from error


def hash_files(folder: Path, files: list[Path], label: str) -> dict[str, str]:
    """Sha256 of each file, on all cores, with progress every few seconds.

    Raises:
        UserError: a file that cannot be read (dangling link, permissions).
    """
    try:
        sizes = {path: (folder / path).stat().st_size for path in files}
    except OSError as error:
        raise UserError(f"cannot be read ({error.strerror})", where=str(error.filename)) from error
    total, done, hashes = sum(sizes.values()), 0, {}
    started = told = time.monotonic()
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        # The largest first: a large one that comes last would leave the other cores idle.
        by_size = sorted(files, key=lambda path: -sizes[path])
        jobs = {pool.submit(file_sha256, folder / path): path for path in by_size}
        for job in as_completed(jobs):
            path = jobs[job]
            try:
                hashes[str(path)] = job.result()
            except OSError as error:
                raise UserError(
                    f"cannot be read ({error.strerror})", where=str(folder / path)
                ) from error
            done += sizes[path]
            now = time.monotonic()
            if now - told > PROGRESS_S:
                told = now
                rate = done / (now - started)
                left = (total - done) / rate if rate else 0.0
                LOGGER.info(
                    "%s: hashed %.1f of %.1f GB, %.2f GB/s, %.0f s left",
                    label,
                    done / 1e9,
                    total / 1e9,
                    rate / 1e9,
                    left,
                )
    return hashes


def manifest(model_id: str, found: Found) -> dict[str, Any]:
    """{model, layout, revision, folder, mount, files: [{path, bytes, sha256}], digest}."""
    files = files_of(found.folder)
    check_complete(found.folder, files)
    hashes = hash_files(found.folder, files, model_id)
    listed = [
        {
            "path": str(path),
            "bytes": (found.folder / path).stat().st_size,
            "sha256": hashes[str(path)],
        }
        for path in files
    ]
    return {
        "model": model_id,
        "layout": found.layout,
        "revision": found.revision,
        "folder": str(found.folder),
        "mount": str(found.mount),
        "files": listed,
        "digest": f"sha256:{digest(listed)}",
    }
