"""What can be wrong with one file of a model, each told by its own name and with both values."""

from __future__ import annotations

import errno
from pathlib import Path

from serve_repro.errors import UserError

AGAIN = "fetch this file again; then only verification and what follows is redone"


def cannot_be_read(path: Path, error: OSError) -> UserError:
    """A link that leads nowhere, or a file that the system does not give."""
    where = str(path)
    if error.errno == errno.ENOENT and path.is_symlink():
        return UserError(
            "file is a dangling link",
            where=where,
            expected=f"a file at {path.readlink()}",
            found="nothing there",
            remedy=AGAIN,
        )
    found = error.strerror or str(error)
    return UserError("file cannot be read", where=where, expected="a readable file", found=found)


def wrong_size(path: Path, expected: int, found: int) -> UserError:
    """Short or long, in bytes."""
    return UserError(
        f"file is too {'short' if found < expected else 'long'}",
        where=str(path),
        expected=f"{expected} bytes",
        found=f"{found} bytes",
        remedy=AGAIN,
    )


def wrong_bytes(path: Path, expected: str, found: str) -> UserError:
    """Another content of the right size; the values say which hash they are."""
    return UserError(
        "file has the right size and wrong bytes",
        where=str(path),
        expected=expected,
        found=found,
        remedy=AGAIN,
    )
