"""One measurement of a point at a time."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterable, Iterator
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


def let_launchers_end(results: Iterable[str], limit_s: float = 30.0) -> None:
    """Wait, but not for ever, until nobody measures these points any more.

    A job can be lost to Slurm, and so to Snakemake, while its launcher still stops the ranks and
    writes why: what is told before that has no reason in it.

    Args:
        results: the points' replay.json and the evaluations' eval.json, made or not.
        limit_s: for all of them together, in seconds.
    """
    end = time.monotonic() + limit_s
    locks = [Path(result).with_name(".lock") for result in results]
    while any(map(_is_held, locks)) and time.monotonic() < end:
        time.sleep(0.2)


def _is_held(lock: Path) -> bool:
    if not lock.exists():
        return False
    with lock.open(encoding="utf-8") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
