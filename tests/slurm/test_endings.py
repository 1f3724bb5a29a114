"""Every way in which a Slurm job can end: its cause is told, nothing is left, the rest is kept."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import psutil
import pytest

from slurm_cluster import SlurmCluster
from tests.end_to_end.conftest import read, wait_for

from .conftest import WAIT_S, SlurmCheckout, edit_yaml, finish, make_stub_checkout

POINT = "results/stub/conc2/replay.json"


def begin(checkout: SlurmCheckout, seconds: int = 60) -> tuple[subprocess.Popen[str], Path]:
    """Start the missing point with a long window, wait until it replays; returns its attempt."""
    edit_yaml(
        checkout.folder / "config/recipes/stub.yaml",
        lambda recipe: recipe["replay"].update(duration_s=seconds),
    )
    # The finished point is not to be redone for the longer window: only this one is asked for.
    process = checkout.start(POINT)
    return process, checkout.replaying(2)


def rank_process(checkout: SlurmCheckout, rank: int) -> psutil.Process:
    """The stub that serves as a rank, whatever node it is on."""
    for process in psutil.process_iter():
        try:
            words = process.cmdline()
        except psutil.Error:
            continue
        stub = any(word.endswith("serve_stub.py") for word in words)
        if stub and words[words.index("--node-rank") + 1] == str(rank):
            return process
    pytest.fail(f"no process serves as rank {rank}")


def assert_resumes(checkout: SlurmCheckout) -> None:
    """The next run makes exactly the missing point."""
    edit_yaml(
        checkout.folder / "config/recipes/stub.yaml",
        lambda recipe: recipe["replay"].update(duration_s=6),
    )
    process = checkout.start("results/summary.csv", "--dry-run")
    _, output = finish(process)
    assert output.count("rule replay:") == 1
    assert "conc2/replay.json" in output.partition("rule replay:")[2].partition("log:")[0]


def test_a_killed_rank_fails_its_point_at_once(again: SlurmCheckout) -> None:
    process, attempt = begin(again)
    killed = datetime.now(UTC)
    rank_process(again, 1).kill()
    point = again.ended(attempt)
    assert (datetime.fromisoformat(point["noticed"]) - killed).total_seconds() < 10
    assert (attempt / "point.json").stat().st_mtime - killed.timestamp() < 15
    assert point["status"] == "failed"
    assert point["reason"] == "rank 1 on node node2 ended by signal SIGKILL"
    code, output = finish(process)
    assert code != 0
    assert "rank 1 on node node2 ended by signal SIGKILL" in output
    assert (attempt / "client/artifacts/profile_export_aiperf.json").is_file()
    for rank in (0, 1):
        assert (attempt / f"rank{rank}/server.log").is_file()
    assert_resumes(again)


def test_ctrl_c_of_snakemake(again: SlurmCheckout) -> None:
    process, attempt = begin(again)
    os.killpg(process.pid, signal.SIGINT)
    code, _ = finish(process, 60)
    assert code != 0
    point = again.ended(attempt)
    assert point["status"] == "interrupted"
    assert point["reason"] == "interrupted by SIGTERM"
    assert_resumes(again)


@pytest.mark.nightly
def test_sigterm_of_snakemake_lets_the_point_finish(again: SlurmCheckout) -> None:
    process, attempt = begin(again, seconds=12)
    process.send_signal(signal.SIGTERM)
    finish(process, 90)
    assert again.ended(attempt)["status"] == "valid"


@pytest.mark.parametrize(
    "how",
    [
        pytest.param([], id="plain"),
        pytest.param(["--signal=TERM"], id="term"),
        pytest.param(["--signal=INT"], id="int", marks=pytest.mark.nightly),
    ],
)
def test_scancel_from_outside(again: SlurmCheckout, how: list[str]) -> None:
    process, attempt = begin(again)
    (job,) = again.jobs()
    again.cluster.run("scancel", *how, job.split()[0])
    point = again.ended(attempt)
    assert point["status"] in ("interrupted", "failed")
    told = (
        "interrupted by SIGTERM" if not how else f"was told to stop by somebody else (SIG{how[0][9:]})"
    )
    assert told in point["reason"] or "interrupted by SIG" in point["reason"]
    code, output = finish(process)
    assert code != 0, output[-2000:]
    assert_resumes(again)


def test_before_the_time_limit_the_point_stops_exports_and_says_so(again: SlurmCheckout) -> None:
    site = again.folder / "config/sites/test-slurm.yaml"
    edit_yaml(site, lambda document: document["env"].update(STUB_BOOT_S="300"))
    # Of one minute, a busy machine leaves less than the 49 s without which no point is begun.
    process = again.start(POINT, "--set-resources", "replay:runtime=2")
    attempt = wait_for("an attempt", lambda: again.attempt(2), WAIT_S)
    point = again.ended(attempt, 90)
    assert point["status"] == "interrupted"
    assert "its time limit is near" in point["reason"]
    code, output = finish(process)
    assert code != 0
    assert "its time limit is near" in output


@pytest.mark.nightly
def test_a_rank_that_outgrows_the_jobs_memory_is_told_so(
    start_cluster: Callable[..., SlurmCluster], tmp_path: Path
) -> None:
    limited = start_cluster(nodes=2, gpus=8, cgroup=True)
    checkout = make_stub_checkout(tmp_path / "memory", limited, ["node1", "node2"])
    site = checkout.folder / "config/sites/test-slurm.yaml"
    edit_yaml(site, lambda document: document["env"].update(STUB_ALLOCATE_MB="3000"))
    edit_yaml(site, lambda document: document["slurm"].update(memory_mb_per_node=1500))
    recipe = checkout.folder / "config/recipes/stub.yaml"
    edit_yaml(recipe, lambda document: document["replay"].update(duration_s=30))
    code, _ = finish(checkout.start("results/stub/conc2/replay.json"), 240)
    assert code != 0
    attempt = checkout.attempt(2)
    assert attempt is not None
    point = checkout.ended(attempt)
    assert point["status"] == "failed"
    assert "rank 1 on node node2" in point["reason"]
    assert "the job's host memory ran out" in point["reason"]
    checkout.assert_nothing_left()


@pytest.mark.nightly
def test_a_drained_node_lets_the_point_finish(again: SlurmCheckout) -> None:
    process, attempt = begin(again, seconds=10)
    again.cluster.run("scontrol", "update", "NodeName=node2", "State=DRAIN", "Reason=test")
    try:
        code, output = finish(process)
        assert code == 0, output[-2000:]
        assert again.ended(attempt)["status"] == "valid"
    finally:
        again.cluster.run("scontrol", "update", "NodeName=node2", "State=RESUME")


@pytest.mark.nightly
def test_a_restarted_controller_disturbs_nothing(again: SlurmCheckout) -> None:
    process, attempt = begin(again, seconds=10)
    again.cluster.restart_controller()
    code, output = finish(process)
    assert code == 0, output[-2000:]
    assert again.ended(attempt)["status"] == "valid"


def test_a_node_without_power_fails_the_point_in_seconds(again: SlurmCheckout) -> None:
    # Slurm ends the job while its launcher still writes why; the last message waits for that.
    process, attempt = begin(again)
    again.cluster.kill_node(2)
    try:
        point = again.ended(attempt)
        assert point["status"] == "failed"
        assert "rank 1 on node node2" in point["reason"]
        code, output = finish(process)
        assert code != 0
        assert "rank 1 on node node2" in output
        (kept_out,) = (again.folder / "resources/quarantine").glob("*.json")
        assert list(read(kept_out)) == ["node2"]
    finally:
        again.cluster.start_node(2)
        again.cluster.wait_for_node(2, "IDLE", WAIT_S)
        # Nobody could remove it: the node was gone. Here both nodes share a disk.
        shutil.rmtree(read(attempt / "rank1/started.json")["scratch"])
    assert_resumes(again)
