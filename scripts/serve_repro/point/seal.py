"""The sha256 of every file of an attempt: what a later reader holds its evidence against."""

from __future__ import annotations

from pathlib import Path

from serve_repro.documents import file_sha256

CACHE = "cache"
"""Compiled code of a rank, rank<r>/cache: no evidence."""


def seal(attempt: Path) -> dict[str, str]:
    """{path below the attempt: sha256, hex} of all its evidence."""
    found = [path.relative_to(attempt) for path in attempt.rglob("*") if path.is_file()]
    kept = sorted(str(path) for path in found if path.parts[1:2] != (CACHE,))
    return {name: file_sha256(attempt / name) for name in kept}
