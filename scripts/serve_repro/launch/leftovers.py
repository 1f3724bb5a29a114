"""What an attempt may leave on this machine, found by its mark and removed; nothing else is touched.

Every process of an attempt carries SERVE_REPRO_RUN_ID in its environment, and so do all its
descendants, whoever their parent has become. Shared memory has no mark: it is noted while a marked
process still maps it, because a killed process cannot remove its own.
"""

from __future__ import annotations

import os
from pathlib import Path

import psutil

RUN_ID, RANK = "SERVE_REPRO_RUN_ID", "SERVE_REPRO_RANK"
_SHM = "/dev/shm/"


def processes_of(run_id: str, rank: int | None = None) -> list[psutil.Process]:
    """Living processes on this machine that belong to an attempt, or to one rank of it."""
    marks = {f"{RUN_ID}={run_id}".encode()}
    if rank is not None:
        marks.add(f"{RANK}={rank}".encode())
    found = []
    for process in psutil.process_iter(["status"]):
        if process.info["status"] == psutil.STATUS_ZOMBIE or process.pid == os.getpid():
            continue
        try:
            environment = Path(f"/proc/{process.pid}/environ").read_bytes()
        except OSError:  # it ended, or it is another user's
            continue
        if marks <= set(environment.split(b"\0")):
            found.append(process)
    return found


def shared_memory_of(processes: list[psutil.Process]) -> set[Path]:
    """Files in /dev/shm that these processes map now."""
    found = set()
    for process in processes:
        try:
            lines = Path(f"/proc/{process.pid}/maps").read_text(encoding="utf-8").splitlines()
        except OSError:
            continue
        for line in lines:
            start = line.find(_SHM)
            if start >= 0 and not line.endswith("(deleted)"):
                found.add(Path(line[start:]))
    return found


def kill(processes: list[psutil.Process], grace_s: float) -> list[psutil.Process]:
    """KILL processes by id; returns those that are still there after the grace."""
    for process in processes:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    _, alive = psutil.wait_procs(processes, timeout=grace_s)
    return [process for process in alive if process.status() != psutil.STATUS_ZOMBIE]


def remove_shared_memory(noted: set[Path]) -> list[Path]:
    """Remove noted files of ours that nobody maps any more; returns what was removed."""
    removed = []
    for path in sorted(noted):
        try:
            if path.stat().st_uid == os.getuid() and not _mapped(path):
                path.unlink()
                removed.append(path)
        except FileNotFoundError:
            continue
    return removed


def _mapped(path: Path) -> bool:
    return any(
        path in shared_memory_of([process])
        for process in psutil.process_iter()
        if process.pid != os.getpid()
    )
