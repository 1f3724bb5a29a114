"""The replay client as a process: it succeeds, fails, runs too long, or is interrupted and exports."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from serve_repro.client import run
from serve_repro.client.run import run_client
from serve_repro.command import Command
from serve_repro.driver import CONSTANTS
from serve_repro.launch import leftovers
from serve_repro.launch.failure import Interrupted, PointFailed
from serve_repro.plan.model import ClientPlan

from .processes import new_run_id, nothing_left, until

CLIENT = """
import os, pathlib, signal, sys, time
how = sys.argv[1]
print("replaying", sorted(os.environ), flush=True)
if how in ("deaf", "leaving"):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
if how == "leaving":
    import subprocess
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    sys.exit(0)
pathlib.Path("up").touch()
try:
    if how.isdigit():
        sys.exit(int(how))
    time.sleep(60)
except KeyboardInterrupt:
    time.sleep(0.2)
    pathlib.Path("export").write_text("what was measured until now")
    sys.exit(130)
"""
"""Stands for agentx-harness: SIGINT makes it export, TERM would throw everything away."""


class Client:
    """A client that behaves in one way, in a folder."""

    def __init__(self, folder: Path, run_id: str) -> None:
        self.folder = folder
        self.run_id = run_id

    def run(self, how: str, limit_s: float = 30, program: str = sys.executable) -> float:
        plan = ClientPlan(
            command=Command(
                argv=[program, "-c", CLIENT, how],
                env={leftovers.RUN_ID: "${RUN_ID}", leftovers.PART: "client"},
            ),
            tokenizer="org/tiny",
            hub_traces=False,
            duration_s=20,
            idle_gap_s=5,
            lane_gap_s=5,
            limit_s=limit_s,
        )
        return run_client(plan, {"RUN_ID": self.run_id}, self.folder, self.watch)

    def watch(self, stage: str) -> None:
        """All is well."""
        assert stage == "replay"

    @property
    def log(self) -> str:
        return (self.folder / "client.log").read_text(encoding="utf-8")


class Interrupting(Client):
    """Somebody stops the point as soon as the client is up."""

    def watch(self, stage: str) -> None:
        if (self.folder / "up").exists():
            raise Interrupted(stage, "interrupted by SIGTERM")


@pytest.fixture
def run_id() -> Iterator[str]:
    mark = new_run_id()
    with nothing_left(mark):
        yield mark
        assert leftovers.processes_of(mark) == []


def test_a_client_that_ends_well_is_told_by_its_seconds(tmp_path: Path, run_id: str) -> None:
    client = Client(tmp_path / "client", run_id)
    assert 0 < client.run("0") < 10
    assert client.log.startswith("replaying")


def test_a_client_sees_the_plans_environment_and_no_token_of_the_callers(
    tmp_path: Path, run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "secret")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.invalid")
    client = Client(tmp_path, run_id)
    client.run("0")
    assert leftovers.RUN_ID in client.log
    assert "HF_TOKEN" not in client.log
    assert "PROXY" not in client.log


def test_a_client_that_fails_is_a_failed_point_with_its_last_words(tmp_path: Path, run_id: str) -> None:
    with pytest.raises(PointFailed, match="replay: the client ended by exit code 3") as failed:
        Client(tmp_path, run_id).run("3")
    assert f"last lines of {tmp_path / 'client.log'}" in failed.value.details
    assert "replaying" in failed.value.details


def test_a_client_that_cannot_be_started_is_a_failed_point(tmp_path: Path, run_id: str) -> None:
    with pytest.raises(PointFailed, match=r"the client cannot be started: .*/no/such/python"):
        Client(tmp_path, run_id).run("0", program="/no/such/python")


def test_a_client_that_runs_past_its_limit_is_interrupted_and_has_exported(
    tmp_path: Path, run_id: str
) -> None:
    began = time.monotonic()
    with pytest.raises(PointFailed, match="replay: the client ran past its limit of 1 s"):
        Client(tmp_path, run_id).run("long", limit_s=1)
    assert time.monotonic() - began < 10
    assert (tmp_path / "export").read_text(encoding="utf-8") == "what was measured until now"


def test_on_any_stop_the_client_is_interrupted_first_and_exports(tmp_path: Path, run_id: str) -> None:
    with pytest.raises(Interrupted, match="interrupted by SIGTERM"):
        Interrupting(tmp_path, run_id).run("long")
    assert (tmp_path / "export").exists()


def test_a_client_that_ignores_the_interrupt_is_killed_after_its_grace(
    tmp_path: Path, run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "CONSTANTS", CONSTANTS._replace(client_interrupt_grace_s=0.3))
    began = time.monotonic()
    with pytest.raises(Interrupted):
        Interrupting(tmp_path, run_id).run("deaf")
    assert time.monotonic() - began < 10
    assert not (tmp_path / "export").exists()


def test_workers_that_a_client_leaves_behind_are_ended(tmp_path: Path, run_id: str) -> None:
    Client(tmp_path, run_id).run("leaving")
    until(lambda: leftovers.processes_of(run_id) == [])
