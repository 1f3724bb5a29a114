"""One measurement of a point at a time."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from serve_repro.errors import UserError


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Refuse to measure a point that another process is measuring now.

    Raises:
        UserError: it is, and who does it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = folder / ".lock"
    with lock.open("a+", encoding="utf-8") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            stream.seek(0)
            raise UserError(
                "this point is being measured already",
                where=str(folder),
                found=f"process {stream.read().strip()}",
                remedy="wait for it, or end that process with SIGINT",
            ) from error
        stream.truncate(0)
        stream.write(f"{os.getpid()}\n")
        stream.flush()
        yield
