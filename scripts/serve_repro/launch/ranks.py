"""The server's ranks as processes: started headless first, watched, and stopped as a whole."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import time
from pathlib import Path

import psutil

from serve_repro.command import Command
from serve_repro.driver import CONSTANTS
from serve_repro.launch import leftovers
from serve_repro.launch.causes import known_cause, tail
from serve_repro.launch.failure import PointFailed
from serve_repro.plan.bindings import fill_all, fill_env
from serve_repro.plan.model import RankPlan

LOGGER = logging.getLogger("serve_repro")

_INHERITED = ("PATH", "LANG", "LC_ALL", "HOME", "USER", "LD_LIBRARY_PATH")
"""All that a rank or client takes over from the launcher's environment: no token, no surprise."""

POLL_S = 0.1


def environment(command: Command, values: dict[str, str]) -> dict[str, str]:
    """A clean base, and what the plan says."""
    base = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    return {**base, **fill_env(command.env, values)}


def describe_exit(code: int) -> str:
    """'exit code 3' or 'signal SIGKILL'."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"


class Rank:
    """One started rank."""

    def __init__(self, plan: RankPlan, values: dict[str, str], log: Path) -> None:
        self.plan = plan
        self.values = values
        self.log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as stream:
            self.process = subprocess.Popen(
                fill_all(plan.start.argv, values),
                env=environment(plan.start, values),
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a Ctrl-C reaches the launcher, which stops ranks in order
            )


class Ranks:
    """All ranks of one server, as one thing that lives or ends together.

    Args:
        plans: the ranks.
        values: what the plan's names stand for, by rank.
        folder: the attempt's folder; rank r logs to <folder>/rank<r>/server.log.
        run_id: the mark of this attempt.
    """

    def __init__(
        self, plans: list[RankPlan], values: list[dict[str, str]], folder: Path, run_id: str
    ) -> None:
        self._plans = plans
        self._values = values
        self._folder = folder
        self._run_id = run_id
        self._shared_memory: set[Path] = set()
        self._noted_at = 0.0
        self.started: list[Rank] = []

    def log(self, rank: int) -> Path:
        """Where a rank's output goes."""
        return self._folder / f"rank{rank}" / "server.log"

    def start(self) -> None:
        """Start the highest rank first, rank 0 last: it is the one that waits for the others."""
        for plan in sorted(self._plans, key=lambda plan: -plan.rank):
            LOGGER.info("rank %d (%s) starts on node %s", plan.rank, plan.role, plan.node)
            self.started.append(Rank(plan, self._values[plan.rank], self.log(plan.rank)))

    def check(self, stage: str) -> None:
        """Raise if any rank has ended: without one of them, none may be measured.

        Raises:
            PointFailed: names rank, node, exit and, where the log tells it, the cause.
        """
        self._note_shared_memory()
        for rank in self.started:
            code = rank.process.poll()
            if code is not None:
                cause = known_cause(rank.log)
                reason = f"rank {rank.plan.rank} on node {rank.plan.node} ended by {describe_exit(code)}"
                details = f"last lines of {rank.log}:\n{tail(rank.log, 20)}"
                raise PointFailed(stage, f"{reason}{f': {cause}' if cause else ''}", details)

    def stop(self, grace_s: float) -> None:
        """End every rank and whatever belongs to them: TERM, then KILL, then look again.

        Raises:
            PointFailed: something of ours outlived KILL.
        """
        started = time.monotonic()
        self._note_shared_memory(now=True)
        for rank in self.started:
            if rank.process.poll() is None:
                rank.process.send_signal(signal.SIGTERM)
        while time.monotonic() - started < grace_s and self._any_running():
            time.sleep(POLL_S)
        left = leftovers.processes_of(self._run_id)
        self._shared_memory |= leftovers.shared_memory_of(left)
        if left:
            names = ", ".join(f"{process.pid} {_name(process)}" for process in left)
            LOGGER.info("still there after %.0f s, killed: %s", time.monotonic() - started, names)
        stubborn = leftovers.kill(left, CONSTANTS.kill_grace_s)
        for rank in self.started:
            rank.process.wait()
        self._run_cleanup()
        removed = leftovers.remove_shared_memory(self._shared_memory)
        if removed:
            LOGGER.info("removed shared memory that killed ranks left: %d files", len(removed))
        LOGGER.info("ranks stopped after %.1f s", time.monotonic() - started)
        if stubborn:
            raise PointFailed("stop", f"processes outlived KILL: {[p.pid for p in stubborn]}")

    def _any_running(self) -> bool:
        running = any(rank.process.poll() is None for rank in self.started)
        return running or bool(leftovers.processes_of(self._run_id))

    def _run_cleanup(self) -> None:
        for rank in self.started:
            for command in rank.plan.cleanup:
                argv = fill_all(command.argv, rank.values)
                run = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
                if run.returncode:
                    LOGGER.info("%s: %s", " ".join(argv), run.stderr.strip())

    def _note_shared_memory(self, now: bool = False) -> None:
        if now or time.monotonic() - self._noted_at > CONSTANTS.note_shared_memory_every_s:
            self._noted_at = time.monotonic()
            self._shared_memory |= leftovers.shared_memory_of(leftovers.processes_of(self._run_id))


def _name(process: psutil.Process) -> str:
    try:
        return str(process.name())
    except psutil.Error:
        return "(ended)"
