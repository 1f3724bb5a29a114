"""What an attempt may leave on this machine, found by its marks and removed; nothing else is touched.

Every process of an attempt carries SERVE_REPRO_RUN_ID in its environment, and so do its descendants,
whoever their parent has become; and all of a rank are in the session that its holder started. Shared
memory has no mark: it is noted while such a process still maps it, because a killed process cannot
remove its own.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection
from pathlib import Path

import psutil

RUN_ID, PART = "SERVE_REPRO_RUN_ID", "SERVE_REPRO_RANK"
_SHM = "/dev/shm/"
_POLL_S = 0.02


def processes_of(
    run_id: str,
    part: int | str | None = None,
    sessions: Collection[int] = (),
    roots: Collection[psutil.Process] = (),
) -> list[psutil.Process]:
    """Living processes on this machine that belong to an attempt, or to one part of it.

    Args:
        run_id: the attempt's mark.
        part: a rank's number, or "client".
        sessions: sessions that the attempt started (ids of their first processes). vLLM's processes
            write their titles over their environments, and with that over the mark.
        roots: first processes of the attempt's containers: all others there descend from them, and
            are in no session of ours.
    """
    marks = {f"{RUN_ID}={run_id}".encode()}
    if part is not None:
        marks.add(f"{PART}={part}".encode())
    found = []
    contained = {pid for root in roots for pid in _family(root)}
    for process in psutil.process_iter(["status"]):
        if process.info["status"] == psutil.STATUS_ZOMBIE or process.pid == os.getpid():
            continue
        try:
            ours = process.pid in contained or os.getsid(process.pid) in sessions
            ours = ours or marks <= set(Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0"))
        except OSError:  # it ended, or it is another user's
            continue
        if ours:
            found.append(process)
    return found


def _family(root: psutil.Process) -> list[int]:
    """A process and all that descend from it; none once it is gone (its id may be another's then)."""
    try:
        return [root.pid, *(child.pid for child in root.children(recursive=True))]
    except psutil.NoSuchProcess:
        return []


def shared_memory_of(processes: list[psutil.Process]) -> set[Path]:
    """Files in /dev/shm that these processes map now.

    Compared by inode: a semaphore is mapped under a first name that is gone by the time it is used.
    """
    inodes = {inode for process in processes for inode in _shared_inodes(process.pid)}
    if not inodes:
        return set()
    return {Path(entry.path) for entry in os.scandir(_SHM) if entry.inode() in inodes}


def _shared_inodes(pid: int) -> set[int]:
    try:
        lines = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8").splitlines()
    except OSError:  # it ended, or it is another user's
        return set()
    # address, permissions, offset, device, inode, path
    return {int(line.split(maxsplit=5)[4]) for line in lines if f" {_SHM}" in line}


def kill(processes: list[psutil.Process], grace_s: float) -> list[psutil.Process]:
    """KILL processes by id; returns those that are still there after the grace."""
    for process in processes:
        try:
            process.kill()
        except (psutil.NoSuchProcess, psutil.AccessDenied):  # another user's stays in what is returned
            continue
    # Not psutil.wait_procs: it takes a child's exit code away from whoever started the child, and waits
    # for zombies, which an idle first process of a container may never take.
    deadline = time.monotonic() + grace_s
    alive = [process for process in processes if _runs(process)]
    while alive and time.monotonic() < deadline:
        time.sleep(_POLL_S)
        alive = [process for process in alive if _runs(process)]
    return alive


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def kill_all(
    find: Callable[[], list[psutil.Process]], grace_s: float
) -> tuple[list[str], list[psutil.Process]]:
    """KILL what `find` finds, and look again: a process may fork while the others are killed.

    Returns:
        ("pid name" of all that were killed, those that are still there after the grace).
    """
    deadline = time.monotonic() + grace_s
    killed: list[str] = []
    found = find()
    while found and time.monotonic() < deadline:
        killed += [f"{process.pid} {_name(process)}" for process in found]
        kill(found, grace_s)
        found = find()
    return list(dict.fromkeys(killed)), found


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


def _name(process: psutil.Process) -> str:
    try:
        return str(process.name())
    except psutil.Error:
        return "(ended)"


def _mapped(path: Path) -> bool:
    inode = path.stat().st_ino
    return any(inode in _shared_inodes(pid) for pid in psutil.pids() if pid != os.getpid())
