"""Ways in which a point ends badly: each names its cause, leaves nothing, loses nothing."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from .conftest import RECIPE, Checkout, assert_nothing_left, finish, main_of_rank, read, wait_for

POINT = f"results/{RECIPE}/conc2/replay.json"
AGAIN = ("--profile", "local", "results/summary.csv", "-R", POINT)

pytestmark = pytest.mark.usefixtures("shared_memory_unchanged")


def replay(checkout: Checkout, plan: dict[str, Any]) -> tuple[int, str]:
    """Run the point's program directly, with an edited plan."""
    return finish(start_replay(checkout, plan), 120)


def start_replay(checkout: Checkout, plan: dict[str, Any]) -> subprocess.Popen[str]:
    path = checkout.folder / "edited.json"
    path.write_text(json.dumps(plan), encoding="utf-8")
    results = Path("results") / RECIPE
    node = "nodes/localhost.json"
    return subprocess.Popen(
        [
            *[sys.executable, "scripts/replay.py", "--plan", "edited.json"],
            *["--weights", str(results / "weights" / node), "--image", str(results / "image" / node)],
            *["--patches", str(results / "patches" / node)],
            *["--patch-set", str(results / "patches/set.json")],
            *["--dataset", "resources/made/traces/made-agentic-tiny/manifest.json"],
            *["--client", ".envs/client/environment.json"],
            *["--summary", "results/edited/summary.csv"],
            *["--output", "results/edited/replay.json", "--log", "logs/edited.log"],
        ],
        cwd=checkout.folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def edited_attempt(checkout: Checkout) -> Path:
    """The one attempt of `replay`."""
    (attempt,) = (checkout.folder / "results/edited/attempts").glob("*")
    return attempt


def plan_of(checkout: Checkout) -> dict[str, Any]:
    plan: dict[str, Any] = read(checkout.point(1) / "plan.json")
    return plan


def hashes(checkout: Checkout, *concurrencies: int) -> dict[int, str]:
    """What finished points hold."""
    files = {level: checkout.point(level) / "replay.json" for level in concurrencies}
    return {level: hashlib.sha256(path.read_bytes()).hexdigest() for level, path in files.items()}


def in_mid_replay(checkout: Checkout) -> Path:
    """Wait until the newest attempt at the forced point replays; returns its folder."""
    old = {*checkout.attempts(2)}

    def replaying() -> Path | None:
        for attempt in set(checkout.attempts(2)) - old:
            records = attempt / "client/artifacts/profile_export.jsonl"
            # Before the window, in the warm-up, an interrupted client has nothing to export.
            if records.is_file() and '"profiling"' in records.read_text(encoding="utf-8"):
                return attempt
        return None

    attempt: Path = wait_for("a replay with its first records", replaying, 300)
    return attempt


def test_a_rank_killed_in_mid_replay_is_seen_at_once_and_costs_only_its_point(copy: Checkout) -> None:
    """vLLM's own /health would answer 200 until its time-out."""
    finished = hashes(copy, 1, 4)
    process = copy.start(*AGAIN)
    attempt = in_mid_replay(copy)
    victim = main_of_rank(attempt, 1)
    assert victim is not None
    killed = datetime.now(UTC)
    victim.kill()
    code, output = finish(process, 60)
    assert code != 0
    point = read(attempt / "point.json")
    assert point["status"] == "failed"
    assert point["stage"] == "replay"
    assert "rank 1 on node localhost ended by signal SIGKILL" in point["reason"]
    assert point["reason"] in output
    assert (datetime.fromisoformat(point["noticed"]) - killed).total_seconds() < 2
    assert (attempt / "client/artifacts/profile_export_aiperf.json").is_file(), "the client exports"
    for rank in (0, 1):
        assert (attempt / f"rank{rank}/server.log").stat().st_size > 0
    assert_nothing_left(attempt)
    assert not (copy.folder / POINT).exists()
    assert hashes(copy, 1, 4) == finished

    assert not (copy.folder / "results/summary.csv").exists(), "a table never outlives its points"

    code, output = copy.run("--profile", "local", "-n", "results/summary.csv")
    assert code == 0, output[-3000:]
    assert output.count("rule replay:") == 1
    assert POINT in output


@pytest.mark.nightly
def test_the_next_run_makes_just_the_missing_point(copy: Checkout) -> None:
    finished = hashes(copy, 1, 4)
    (copy.folder / POINT).unlink()
    (copy.folder / "results/summary.csv").unlink()
    code, output = copy.run("--profile", "local", "results/summary.csv")
    assert code == 0, output[-3000:]
    assert output.count("rule replay:") == 1
    assert hashes(copy, 1, 4) == finished
    assert (copy.folder / POINT).is_file()


@pytest.mark.nightly  # by day on Slurm, and of the client alone
def test_ctrl_c_in_mid_replay_ends_cleanly(copy: Checkout) -> None:
    finished = hashes(copy, 1, 4)
    process = copy.start(*AGAIN)
    attempt = in_mid_replay(copy)
    started = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the whole foreground group
    code, output = finish(process, 60)
    assert time.monotonic() - started < 45
    assert code != 0
    point = read(attempt / "point.json")
    assert point["status"] == "interrupted"
    assert point["reason"] == "interrupted by SIGINT"
    assert read(attempt / "client/artifacts/profile_export_aiperf.json")["was_cancelled"] is True
    assert_nothing_left(attempt)
    assert hashes(copy, 1, 4) == finished
    _, output = copy.run("--profile", "local", "-n")
    assert output.count("rule replay:") == 1


def test_a_point_whose_workflow_was_killed_stops_by_itself(copy: Checkout) -> None:
    """Else a rerun would meet the servers of the run before."""
    process = copy.start(*AGAIN)
    old = {*copy.attempts(2)}
    attempt: Path = wait_for("a rank 1", lambda: started_rank(copy, old), 180)
    process.kill()
    process.wait(timeout=30)  # its output stays open as long as the point lives
    point = wait_for("the point's end", lambda: (attempt / "point.json").is_file(), 30)
    point = read(attempt / "point.json")
    assert point["status"] == "interrupted"
    assert point["reason"] == "the workflow that started this point is gone"
    assert_nothing_left(attempt)


def started_rank(checkout: Checkout, old: set[Path]) -> Path | None:
    for attempt in set(checkout.attempts(2)) - old:
        if (attempt / "launch.json").is_file() and main_of_rank(attempt, 1):
            return attempt
    return None


def test_a_rank_killed_while_booting_is_named(copy: Checkout) -> None:
    process = start_replay(copy, plan_of(copy))
    folder = copy.folder / "results/edited/attempts"

    def rank_1() -> Any:
        found = [a for a in folder.glob("*") if (a / "launch.json").is_file()]
        return found and main_of_rank(found[0], 1)

    victim = wait_for("rank 1", rank_1, 120)
    time.sleep(2)  # both are importing by now
    victim.kill()
    code, output = finish(process, 30)
    assert code == 1
    assert "rank 1 on node localhost ended by signal SIGKILL" in output
    attempt = edited_attempt(copy)
    assert read(attempt / "point.json")["stage"] == "boot"
    assert (attempt / "rank0/server.log").is_file()
    assert (attempt / "rank1/server.log").is_file()
    assert_nothing_left(attempt)
    assert not (copy.folder / "results/edited/replay.json").exists()


def test_a_server_that_never_gets_ready_ends_at_its_deadline(copy: Checkout) -> None:
    plan = plan_of(copy)
    plan["readiness"]["boot_limit_s"] = 4.0
    started = time.monotonic()
    code, output = replay(copy, plan)
    assert code == 1
    assert "boot: not healthy after 4 s (boot_limit_s)" in output or "not healthy after 4 s" in output
    assert time.monotonic() - started < 30
    assert_nothing_left(edited_attempt(copy))


def test_a_wanted_port_that_is_taken_is_refused_before_anything_starts(copy: Checkout) -> None:
    plan = plan_of(copy)
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        port = stranger.getsockname()[1]
        plan["ports"]["api"] = port
        code, output = replay(copy, plan)
    assert code == 1
    assert f"port {port}: the port that the site wants for the API is taken" in output
    assert f"process {os.getpid()}" in output
    assert "Traceback" not in output
    assert not list((copy.folder / "results/edited/attempts").glob("*/rank*"))


def test_a_second_process_may_not_measure_the_same_point(copy: Checkout) -> None:
    import fcntl

    folder = copy.folder / "results/edited"
    folder.mkdir()
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        code, output = replay(copy, plan_of(copy))
    assert code == 1
    assert "this point is being measured already" in output
    assert f"process {os.getpid()}" in output
