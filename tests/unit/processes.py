"""Small real processes that stand for ranks, servers and strangers, and end with their test."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from serve_repro.launch import leftovers


def new_run_id() -> str:
    """A mark that no other process on this machine carries."""
    return f"unit-{uuid.uuid4().hex}"


def until(true: Callable[[], object], limit_s: float = 10.0) -> None:
    """Wait until something holds; fail if it does not come to hold."""
    deadline = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as stream:  # noqa: PTH123
            return stream.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@contextmanager
def python(
    code: str, *words: str, run_id: str | None = None, env: dict[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """A Python process, marked as of an attempt if a run id is given; killed at the end."""
    marked = {} if run_id is None else {leftovers.RUN_ID: run_id}
    process = subprocess.Popen(
        [sys.executable, "-I", "-c", code, *words],
        env={"PATH": os.environ["PATH"], **marked, **(env or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.communicate()


@contextmanager
def nothing_left(run_id: str) -> Iterator[None]:
    """Whatever the test does: what carries its mark is killed at the end, by id."""
    try:
        yield
    finally:
        leftovers.kill(leftovers.processes_of(run_id), 5)
