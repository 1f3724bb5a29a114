"""One measurement of a point at a time, and the end of a workflow that waits for its last words."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from serve_repro.errors import UserError
from serve_repro.point.lock import let_launchers_end, only_one

from .processes import python

HOLD = """
import fcntl, sys, time
with open(sys.argv[1], "a") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that measures the point."""
    with python(HOLD, str(tmp_path / ".lock")) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process


@pytest.mark.usefixtures("holder")
def test_a_point_that_is_measured_by_another_process_is_refused_with_its_id(tmp_path: Path) -> None:
    (tmp_path / ".lock").write_text("4711\n", encoding="utf-8")
    with pytest.raises(UserError, match="process 4711"), only_one(tmp_path):
        pass


def test_the_last_message_waits_for_a_launcher_that_still_ends(
    tmp_path: Path, holder: subprocess.Popen[str]
) -> None:
    started = time.monotonic()
    threading.Timer(1.0, holder.kill).start()
    let_launchers_end([str(tmp_path / "replay.json")], limit_s=60)
    assert 0.9 < time.monotonic() - started < 30
    assert holder.wait(60) != 0


def test_it_does_not_wait_for_ever(tmp_path: Path) -> None:
    with only_one(tmp_path):
        started = time.monotonic()
        let_launchers_end([str(tmp_path / "replay.json")], limit_s=0.3)
        assert time.monotonic() - started >= 0.3


def test_where_nothing_is_measured_nobody_waits(tmp_path: Path) -> None:
    (tmp_path / "ended").mkdir()
    with only_one(tmp_path / "ended"):
        pass
    started = time.monotonic()
    let_launchers_end([str(tmp_path / name / "replay.json") for name in ("ended", "never")], 60)
    assert time.monotonic() - started < 30
