"""Requests to stop: a signal, or a workflow that is gone; noticed at safe places only."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from serve_repro.launch import leftovers

from .processes import python, until

SCRIPTS = Path(__file__).parents[2] / "scripts"

CODE = """
import sys, time
sys.path.insert(0, sys.argv[1])
from serve_repro.launch.failure import Interrupted
from serve_repro.launch.interrupts import Interrupts
interrupts = Interrupts()
def say(text):
    with open(sys.argv[2], "a") as stream:
        stream.write(text + "\\n")
say("up")
while True:
    time.sleep(float(sys.argv[3]))
    try:
        interrupts.check("replay")
    except Interrupted as stop:
        say(f"{stop.stage}: {stop.reason}")
        break
"""
"""Stands for a point under way: it looks for a stop every argv[3] seconds."""

SNAKEMAKE = """
import subprocess, sys, time
code, *words = sys.argv[1:]
subprocess.Popen(["/bin/sh", "-c", '"$@"; true', "sh", sys.executable, "-c", code, *words])
time.sleep(60)
"""
"""Stands for the workflow: it starts the point through a shell, as Snakemake does."""


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_is_remembered_and_told_at_the_next_look(
    tmp_path: Path, number: signal.Signals
) -> None:
    said = tmp_path / "said"
    with python(CODE, str(SCRIPTS), str(said), "0.02") as process:
        until(lambda: lines(said) == ["up"])
        process.send_signal(number)
        assert process.wait(10) == 0
    assert lines(said)[1:] == [f"replay: interrupted by {number.name}"]


def test_a_second_signal_breaks_nothing_and_the_first_one_is_the_reason(tmp_path: Path) -> None:
    """Between two looks: as during a clean-up."""
    said = tmp_path / "said"
    with python(CODE, str(SCRIPTS), str(said), "0.8") as process:
        until(lambda: lines(said) == ["up"])
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGINT):
            process.send_signal(number)
            time.sleep(0.1)  # what comes together is told apart by number, not by time
            assert process.poll() is None
        assert process.wait(10) == 0
    assert lines(said)[1:] == ["replay: interrupted by SIGTERM"]


def test_a_workflow_that_was_killed_is_noticed_by_its_point(tmp_path: Path, run_id: str) -> None:
    said, program = tmp_path / "said", tmp_path / "bin/snakemake"
    program.parent.mkdir()
    program.write_text(SNAKEMAKE, encoding="utf-8")
    words = [sys.executable, str(program), CODE, str(SCRIPTS), str(said), "0.02"]
    workflow = subprocess.Popen(words, env={leftovers.RUN_ID: run_id}, stdin=subprocess.DEVNULL)
    try:
        until(lambda: lines(said) == ["up"])
    finally:
        workflow.kill()
        workflow.wait()
    until(lambda: len(lines(said)) == 2)
    assert lines(said)[1] == "replay: the workflow that started this point is gone"


def test_without_a_stop_a_point_goes_on(tmp_path: Path) -> None:
    said = tmp_path / "said"
    with python(CODE, str(SCRIPTS), str(said), "0.02") as process:
        until(lambda: lines(said) == ["up"])
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.3)
