"""The server's ranks, each held on its node: started headless first, watched, stopped as a whole."""

from __future__ import annotations

import json
import logging
import shutil
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from serve_repro.documents import write_json
from serve_repro.driver import CONSTANTS
from serve_repro.launch import containers, leftovers
from serve_repro.launch.causes import known_cause, tail
from serve_repro.launch.environment import clean_environment
from serve_repro.launch.exits import describe_exit
from serve_repro.launch.failure import PointFailed
from serve_repro.launch.slurm import slurm_environment
from serve_repro.plan.bindings import fill_all
from serve_repro.plan.model import Plan, RankPlan

LOGGER = logging.getLogger("serve_repro")

HOLDER = Path(__file__).parents[2] / "hold_rank.py"


class Rank:
    """One rank: the process that holds it (here, or a Slurm step), and what that has said."""

    def __init__(self, plan: RankPlan, values: dict[str, str], folder: Path, order: Path) -> None:
        self.plan = plan
        self.node = values["NODE"]
        self.folder = folder
        self.said: dict[str, dict[str, Any]] = {}
        self.heard_at = time.monotonic()
        with (folder / "holder.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*fill_all(plan.prefix, values), sys.executable, str(HOLDER), str(order)],
                env=clean_environment() | slurm_environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,  # a Ctrl-C reaches the launcher, which stops ranks in order
            )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            try:
                said = json.loads(line)
            except ValueError:  # Slurm's own words
                continue
            if not isinstance(said, dict):
                continue
            self.heard_at = time.monotonic()
            self.said[said["event"]] = said

    def problem(self) -> str | None:
        """Why this rank can no longer be counted on; None while it is well."""
        gone = self.process.poll() is not None
        if gone and self._last_words() is None:
            self._listener.join(CONSTANTS.poll_s)  # its last words may still be in the pipe
        ended = self._last_words()
        if ended is not None:
            return self._how_it_ended(ended)
        if gone:
            cause = known_cause(self.folder / "holder.log")
            told = f": {cause}" if cause else ""
            return f"was lost with its holder ({describe_exit(self.process.returncode)}){told}"
        if self.silent():
            silence = time.monotonic() - self.heard_at
            return f"has been silent for {silence:.0f} s: its node or the network is gone"
        return None

    def silent(self) -> bool:
        """Whether nothing was heard from a rank for so long that its node counts as lost."""
        running = self.process.poll() is None and self._last_words() is None
        return running and time.monotonic() - self.heard_at > CONSTANTS.lost_after_s

    def _last_words(self) -> dict[str, Any] | None:
        return self.said.get("stopping") or self.said.get("ended")

    def _how_it_ended(self, ended: dict[str, Any]) -> str:
        if ended["asked"]:
            return f"was told to stop by somebody else ({ended['asked']})"
        cause = known_cause(self.folder / "server.log")
        return f"ended by {describe_exit(ended['code'])}{f': {cause}' if cause else ''}"

    def release(self) -> None:
        """Ask the holder to end its rank."""
        if self.process.stdin is not None and not self.process.stdin.closed:
            try:
                self.process.stdin.close()
            except BrokenPipeError:
                return  # it has ended already


class Ranks:
    """All ranks of one server, as one thing that lives or ends together.

    Args:
        plan: the point.
        values: what the plan's names stand for, by rank, except what only the node knows.
        attempt: the attempt's folder; rank r has <attempt>/rank<r>/.
    """

    def __init__(self, plan: Plan, values: list[dict[str, str]], attempt: Path) -> None:
        self._plan = plan
        self._values = values
        self._attempt = attempt
        self.started: list[Rank] = []

    def folder(self, rank: int) -> Path:
        """Where a rank's log, attestations and status go."""
        return self._attempt / f"rank{rank}"

    def processes_here(self) -> set[int]:
        """Ids of the processes of rank 0, which runs on this node."""
        sessions, roots = set(), []
        for rank in self.started:
            if rank.plan.rank == 0 and "started" in rank.said:
                sessions.add(rank.said["started"]["pid"])
            if rank.plan.rank == 0 and "contained" in rank.said:
                with suppress(psutil.NoSuchProcess):
                    roots.append(psutil.Process(rank.said["contained"]["pid"]))
        run_id = self._values[0]["RUN_ID"]
        return {found.pid for found in leftovers.processes_of(run_id, None, sessions, roots)}

    def start(self) -> None:
        """Start the highest rank first, rank 0 last: it is the one that waits for the others."""
        for plan in sorted(self._plan.ranks, key=lambda plan: -plan.rank):
            values, folder = self._values[plan.rank], self.folder(plan.rank)
            folder.mkdir(parents=True)
            order = folder / "order.json"
            write_json(
                order,
                {
                    "rank": plan.rank,
                    "run_id": values["RUN_ID"],
                    "folder": str(folder.absolute()),
                    "start": plan.start.model_dump(),
                    "cleanup": [command.model_dump() for command in plan.cleanup],
                    "left": plan.left and plan.left.model_dump(),
                    "first_process": plan.first_process and plan.first_process.model_dump(),
                    "values": values,
                    "master": values["MASTER_ADDR"],
                    "stop_s": self._plan.readiness.stop_s,
                },
            )
            LOGGER.info("rank %d (%s) starts on node %s", plan.rank, plan.role, values["NODE"])
            self.started.append(Rank(plan, values, folder, order))

    def check(self, stage: str) -> None:
        """Raise if any rank is not well: without one of them, none may be measured.

        Raises:
            PointFailed: names rank, node, what happened and, where a log tells it, the cause.
        """
        for rank in self.started:
            problem = rank.problem()
            if problem is not None:
                log = rank.folder / "server.log"
                told = [] if known_cause(log) else self._causes_beside(rank)
                raise PointFailed(
                    stage,
                    "; ".join([f"rank {rank.plan.rank} on node {rank.node} {problem}", *told]),
                    f"last lines of {log}:\n{tail(log, 20)}",
                    {rank.node: f"rank {rank.plan.rank} {problem}"} if rank.silent() else None,
                )

    def _causes_beside(self, ended: Rank) -> list[str]:
        """Known causes in the other ranks' logs: the first rank to end need not be the broken one."""
        causes = {
            rank.plan.rank: known_cause(rank.folder / "server.log")
            for rank in self.started
            if rank is not ended
        }
        return [f"rank {rank} says: {cause}" for rank, cause in causes.items() if cause is not None]

    def late_causes(self) -> list[str]:
        """What Slurm tells about its steps only once they are over."""
        found = [known_cause(rank.folder / "holder.log") for rank in self.started]
        return sorted({cause for cause in found if cause is not None})

    def stop(self) -> None:
        """End every rank and whatever belongs to it, on every node.

        Raises:
            PointFailed: something of ours outlived it.
        """
        started = time.monotonic()
        for rank in self.started:
            rank.release()
        limit = self._plan.readiness.stop_s + CONSTANTS.kill_grace_s + CONSTANTS.holder_grace_s
        outlived = []
        for rank in self.started:
            try:
                rank.process.wait(max(0.0, limit - (time.monotonic() - started)))
            except subprocess.TimeoutExpired:
                outlived.append(f"rank {rank.plan.rank}: its holder did not end in {limit:.0f} s")
                _end(rank.process)
            ended = rank.said.get("ended", {})
            if ended.get("killed"):
                names = ", ".join(ended["killed"])
                LOGGER.info("rank %d: killed after the grace: %s", rank.plan.rank, names)
            outlived += [f"rank {rank.plan.rank}: {what}" for what in ended.get("left", [])]
            outlived += [f"rank {rank.plan.rank}: {what}" for what in self._end_orphans(rank)]
        LOGGER.info("ranks stopped after %.1f s", time.monotonic() - started)
        if outlived:
            raise PointFailed("stop", f"outlived the stop: {'; '.join(outlived)}")

    def _end_orphans(self, rank: Rank) -> list[str]:
        """End what a holder that was itself killed has left; returns what remains.

        On other nodes Slurm ends the processes, since they belong to the step. A container belongs to
        no step: it is removed by its name, on whatever node.
        """
        if "ended" in rank.said:
            return []
        values = self._values[rank.plan.rank]
        run_id = values["RUN_ID"]
        prefix = fill_all(rank.plan.prefix, values)
        for command in rank.plan.cleanup:
            containers.clean_up([*prefix, *fill_all(command.argv, values)])
        there = rank.plan.left
        contained = containers.left([*prefix, *fill_all(there.argv, values)]) if there else []
        started = rank.said.get("started")
        here = started is not None and started["host"] == socket.gethostname()
        sessions = {started["pid"]} if started is not None and here else set()
        killed, left = leftovers.kill_all(
            lambda: leftovers.processes_of(run_id, rank.plan.rank, sessions), CONSTANTS.kill_grace_s
        )
        if killed:
            LOGGER.info("rank %d: its holder was lost; killed: %s", rank.plan.rank, ", ".join(killed))
        if started is not None and here:
            shutil.rmtree(started["scratch"], ignore_errors=True)
        return [*(f"process {process.pid}" for process in left), *contained]


def _end(holder: subprocess.Popen[str]) -> None:
    """End a holder that does not answer. Slurm kills a step's processes when its srun is terminated."""
    holder.terminate()
    try:
        holder.wait(CONSTANTS.kill_grace_s)
    except subprocess.TimeoutExpired:
        holder.kill()
        holder.wait()
