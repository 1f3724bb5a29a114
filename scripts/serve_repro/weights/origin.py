"""What the hub said of a model's files when they were fetched, read from what its client left there.

In a hub cache a blob is named by its ETag; beside a folder made with `--local-dir` each file has a
note: commit, ETag, time. The ETag of a large file is its sha256 (64 hex digits), that of a small one
is git's hash of it (40). So the hub's word is to be had without asking it again.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

NOTES = Path(".cache/huggingface/download")
SHA256 = re.compile(r"[0-9a-f]{64}")
GIT = re.compile(r"[0-9a-f]{40}")


def etag_of(folder: Path, file: Path) -> str | None:
    """The hub's ETag of a file, or None where nothing tells it."""
    path = folder / file
    if path.is_symlink():
        return path.readlink().name
    note = folder / NOTES / f"{file}.metadata"
    lines = note.read_text(encoding="utf-8").splitlines() if note.is_file() else []
    return lines[1].strip() if len(lines) > 1 else None


def revisions_noted(folder: Path) -> set[str]:
    """The commits in the notes beside a plain folder's files."""
    notes = (folder / NOTES).rglob("*.metadata")
    return {note.read_text(encoding="utf-8").partition("\n")[0].strip() for note in notes}


def git_hash(path: Path) -> str:
    """Git's hash of a file as a blob. Only small files have one as their ETag."""
    content = path.read_bytes()
    # Git's own identity of a blob, not a protection against anyone.
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
