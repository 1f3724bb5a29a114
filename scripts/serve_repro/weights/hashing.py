"""Sha256 of many files, on all cores.

Threads are enough: hashlib lets go of the interpreter while it works. Files are read, not mapped:
mapping saves the copy out of the page cache, and a file that shrinks under a mapping kills the process.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import NamedTuple

from serve_repro.documents import file_sha256

LOGGER = logging.getLogger("serve_repro")
PROGRESS_S = 5.0


class Hashed(NamedTuple):
    """What came of hashing some files."""

    hashes: dict[str, str]
    """{file: sha256}"""
    failed: dict[str, OSError]
    """{file: why it cannot be read}"""


def hash_files(folder: Path, files: Iterable[Path], label: str) -> Hashed:
    """Sha256 of each file below a folder, with GB/s and the time that is left every few seconds."""
    sizes: dict[Path, int] = {}
    done = Hashed({}, {})
    for path in files:
        try:
            sizes[path] = (folder / path).stat().st_size
        except OSError as error:
            done.failed[str(path)] = error
    total, read = sum(sizes.values()), 0
    started = told = time.monotonic()
    with ThreadPoolExecutor(max_workers=len(os.sched_getaffinity(0))) as pool:
        # The largest first: a large one that comes last would leave the other cores idle.
        by_size = sorted(sizes, key=lambda path: -sizes[path])
        jobs = {pool.submit(file_sha256, folder / path): path for path in by_size}
        for job in as_completed(jobs):
            path = jobs[job]
            try:
                done.hashes[str(path)] = job.result()
            except OSError as error:
                done.failed[str(path)] = error
            read += sizes[path]
            now = time.monotonic()
            if now - told > PROGRESS_S:
                told = now
                _tell(label, read, total, now - started)
    return done


def _tell(label: str, read: int, total: int, seconds: float) -> None:
    rate = read / seconds
    left = (total - read) / rate if rate else float("inf")
    words = "%s: hashed %.1f of %.1f GB, %.2f GB/s, %.0f s left"
    LOGGER.info(words, label, read / 1e9, total / 1e9, rate / 1e9, left)
