"""Start daemons and end them again, never mistaking another process for one of ours.

A record file holds the line of /proc/PID/stat that a process wrote itself before it became the
daemon. A pid is reused; a pid with its start time (clock ticks since boot) is not.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from devslurm.errors import ClusterError

# The child writes its record, not its parent: if the parent dies in between, the record still
# comes to be, and `down` finds the process. $0 is the record; `read` and `printf` are built in.
_RECORD_AND_EXEC = (
    'IFS= read -r line </proc/$$/stat && printf "%s\\n" "$line" >"$0" && exec "$@"; exit 127'
)
# Python ignores SIGPIPE, and a shell's background jobs SIGINT; jobs would inherit both.
_DEFAULT_SIGNALS = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGPIPE,
    signal.SIGTERM,
    signal.SIGXFSZ,
)


@dataclass(frozen=True)
class Process:
    """One process for all time."""

    pid: int
    start_ticks: int


def _parse(stat: str) -> tuple[Process, str]:
    """Return the process and its state letter from a line of /proc/PID/stat.

    The command name stands in parentheses and may itself hold spaces and parentheses.
    """
    head, _, tail = stat.rpartition(")")
    fields = tail.split()
    return Process(int(head.split(" ", 1)[0]), int(fields[19])), fields[0]


def living(pid: int) -> Process | None:
    """Return the process that has `pid` now; None if there is none, or only a zombie."""
    try:
        process, state = _parse(Path(f"/proc/{pid}/stat").read_text())
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if state in "ZX" else process


def is_alive(process: Process | None) -> bool:
    """Tell whether `process` still runs; a zombie does not."""
    return process is not None and living(process.pid) == process


def recorded(record: Path) -> Process | None:
    """Return the process of a record file, alive or not; None if nothing was recorded."""
    try:
        return _parse(record.read_text())[0]
    except (FileNotFoundError, IndexError, ValueError):
        return None


def spawn(
    record: Path,
    command: Sequence[str],
    log: Path,
    environment: Mapping[str, str],
    timeout_s: float = 10,
) -> Process:
    """Start `command` in a session of its own, its output appended to `log`.

    Raise ClusterError if it has not recorded itself within `timeout_s` seconds.
    """
    record.unlink(missing_ok=True)
    # posix_spawn and not Popen: whoever holds the state directory owns the daemon, and there is
    # no object whose collection would complain about a child that still runs.
    pid = os.posix_spawn(
        "/bin/sh",
        ["sh", "-c", _RECORD_AND_EXEC, str(record), *command],
        environment,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
        setsigmask=(),
        setsigdef=_DEFAULT_SIGNALS,
    )
    deadline = time.monotonic() + timeout_s
    while (process := recorded(record)) is None:
        if time.monotonic() > deadline:
            raise ClusterError(f"{command[0]}: pid {pid} did not start within {timeout_s} s")
        time.sleep(0.002)
    return process


def only_child(process: Process) -> Process | None:
    """Return the first child of `process`, for `unshare --fork` the init of its namespace."""
    try:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    child = living(int(children[0])) if children else None
    return child if is_alive(process) else None


def end(process: Process | None, number: signal.Signals | None, timeout_s: float) -> bool:
    """Send a signal (or none) and wait; return whether the process is gone by `timeout_s`."""
    if process is None:
        return True
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return True
    try:
        # The handle was opened before this test, so it cannot mean a later owner of the pid.
        if is_alive(process):
            if number is not None:
                signal.pidfd_send_signal(handle, number)
            poll = select.poll()
            poll.register(handle, select.POLLIN)
            if not poll.poll(timeout_s * 1000):
                return False
    finally:
        os.close(handle)
    _reap(process.pid)
    return True


def _reap(pid: int) -> None:
    """Take a dead child out of the process table if it is our own and not another's."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
