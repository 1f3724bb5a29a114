"""Hold one rank on its node: start it, tell how it is, and end it and all that belongs to it.

The holder is the only program that touches a node. It speaks to the supervisor in lines of JSON on
its standard output, and stops when its standard input ends: whoever started it is done, or dead.
Slurm carries both streams to other nodes, so that one machine and many work alike.

    {"event": "started", "pid": ..., "host": ..., "address": ..., "interface": ...}
    {"event": "contained", "pid": ...}
    {"event": "beat"}
    {"event": "stopping", "code": ..., "asked": ...}
    {"event": "ended", "code": ..., "asked": ..., "killed": [...], "left": [...]}
"""

from __future__ import annotations

import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType
from typing import Any

import psutil

from serve_repro.driver import CONSTANTS
from serve_repro.launch import containers, leftovers
from serve_repro.launch.environment import clean_environment
from serve_repro.launch.network import own_address
from serve_repro.plan.bindings import fill_all, fill_env

EXIT_NOT_STARTED = 127
"""The code that shells give a command that is not there."""

_STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Holder:
    """One rank of one attempt.

    Args:
        order: what the supervisor wrote: {rank, run_id, folder, start: {argv, env}, cleanup, left,
            first_process, values, master, stop_s}; `values` lacks only what the node itself knows.
    """

    def __init__(self, order: dict[str, Any]) -> None:
        self._order = order
        self._shared_memory: set[Path] = set()
        self._asked: str | None = None
        self._sessions: set[int] = set()
        self._roots: list[psutil.Process] = []
        self._scratch = Path(tempfile.mkdtemp(prefix="serve-repro-"))
        for number in _STOPS:
            signal.signal(number, self._remember)

    def _remember(self, number: int, _frame: FrameType | None) -> None:
        if self._asked is None:
            self._asked = signal.Signals(number).name

    def hold(self) -> int:
        """Run the rank to its end, or to a request to stop; returns 0 if it was asked to stop.

        Raises:
            UserError: there is no route to the master.
        """
        try:
            return self._hold()
        finally:
            shutil.rmtree(self._scratch, ignore_errors=True)

    def _hold(self) -> int:
        address, interface = own_address(self._order["master"])
        values = {
            **self._order["values"],
            "HOST_NAME": socket.gethostname(),
            "HOST_ADDR": address,
            "INTERFACE": interface,
            "SCRATCH": str(self._scratch),
            "USER_IDS": f"{os.getuid()}:{os.getgid()}",
        }
        start = self._order["start"]
        argv, env = fill_all(start["argv"], values), fill_env(start["env"], values)
        folder = Path(self._order["folder"])
        if "CACHE_DIR" in values:
            Path(values["CACHE_DIR"]).mkdir(parents=True, exist_ok=True)
        with (folder / "server.log").open("ab") as log:
            try:
                process = subprocess.Popen(
                    argv,
                    env=clean_environment() | env,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:
                log.write(f"serve-repro: cannot be started: {error}\n".encode())
                _say("ended", code=EXIT_NOT_STARTED, asked=None, killed=[], left=[])
                return 1
        self._sessions.add(process.pid)
        started = {"pid": process.pid, "host": socket.gethostname(), "address": address}
        started |= {"interface": interface, "scratch": str(self._scratch)}
        _write(folder / "started.json", started | {"argv": argv, "env": env})
        _say("started", **started)
        try:
            self._watch(process, values)
            # At once: ending what belongs to the rank takes seconds, and the others are waiting.
            _say("stopping", code=process.returncode, asked=self._asked)
        finally:
            killed, left = self._end(process, values)
        code = process.returncode
        _say("ended", code=code, asked=self._asked, killed=killed, left=left)
        return 0 if self._asked and not left else 1

    def _watch(self, process: subprocess.Popen[bytes], values: dict[str, str]) -> None:
        """Until the rank ends, a signal comes, or standard input ends."""
        selector = selectors.DefaultSelector()
        selector.register(sys.stdin.buffer, selectors.EVENT_READ)
        beat = noted = time.monotonic()
        while process.poll() is None and self._asked is None:
            if selector.select(CONSTANTS.poll_s) and not os.read(sys.stdin.fileno(), 4096):
                self._asked = "end of input"
            now = time.monotonic()
            if now - beat > CONSTANTS.beat_every_s:
                beat = now
                _say("beat")
                self._find_container(values)
            if now - noted > CONSTANTS.note_shared_memory_every_s:
                noted = now
                self._note_shared_memory()

    def _find_container(self, values: dict[str, str]) -> None:
        """Learn the first process of the rank's container: no session or parent of ours leads to it."""
        command = self._order.get("first_process")
        if command is None or self._roots:
            return
        try:
            pid = int(containers.ask(fill_all(command["argv"], values)))
            self._roots = [psutil.Process(pid)] if pid else []
        except (containers.NoAnswer, ValueError, psutil.NoSuchProcess):
            return  # it is not there yet, or no more
        if self._roots:
            _say("contained", pid=pid)

    def _end(
        self, process: subprocess.Popen[bytes], values: dict[str, str]
    ) -> tuple[list[str], list[str]]:
        """TERM, grace, clean up, KILL; returns (what had to be killed, what is left)."""
        self._note_shared_memory()
        if process.poll() is None:
            process.terminate()
        deadline = time.monotonic() + self._order["stop_s"]
        while time.monotonic() < deadline and (process.poll() is None or self._processes()):
            time.sleep(CONSTANTS.poll_s)
        self._note_shared_memory()
        # A container first: its processes may be another user's, whom only the engine can kill.
        for command in self._order["cleanup"]:
            containers.clean_up(fill_all(command["argv"], values))
        killed, remaining = leftovers.kill_all(self._processes, CONSTANTS.kill_grace_s)
        left = [f"process {entry.pid}" for entry in remaining]
        if not _ended(process):
            left.append(f"process {process.pid}")
        if self._order.get("left"):
            left += containers.left(fill_all(self._order["left"]["argv"], values))
        leftovers.remove_shared_memory(self._shared_memory)
        return killed, left

    def _processes(self) -> list[psutil.Process]:
        run_id, rank = self._order["run_id"], self._order["rank"]
        return leftovers.processes_of(run_id, rank, self._sessions, self._roots)

    def _note_shared_memory(self) -> None:
        self._shared_memory |= leftovers.shared_memory_of(self._processes())


def _ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether the rank's own process is gone; one that has dropped its mark is killed by its id."""
    if process.poll() is None:
        process.kill()
    try:
        process.wait(CONSTANTS.kill_grace_s)
    except subprocess.TimeoutExpired:
        return False
    return True


def _say(event: str, **facts: Any) -> None:
    """One line to the supervisor; if nobody listens any more, standard input has ended too."""
    try:
        print(json.dumps({"event": event, **facts}), flush=True)
    except BrokenPipeError:
        # Python would try to flush the broken pipe once more at exit, and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2, sort_keys=True) + "\n", encoding="utf-8")
