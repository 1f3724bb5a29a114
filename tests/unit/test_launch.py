"""Ranks as processes: started in order, watched, and stopped as a whole, whatever they do."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from serve_repro.command import Command
from serve_repro.driver import CONSTANTS
from serve_repro.launch import leftovers
from serve_repro.launch import ranks as ranks_module
from serve_repro.launch.causes import known_cause, tail
from serve_repro.launch.exits import describe_exit
from serve_repro.launch.failure import PointFailed
from serve_repro.launch.ranks import Ranks
from serve_repro.plan.build import make_plan
from serve_repro.plan.model import RankPlan
from serve_repro.recipe.load import load
from serve_repro.recipe.recipe import Recipe
from serve_repro.recipe.site import Site

from .processes import alive, new_run_id, nothing_left, until

BASE = Path(__file__).parents[2]
PLAN = make_plan(
    load(BASE / "config/recipes/tiny-cpu-tp1pp2.yaml", Recipe),
    load(BASE / "config/sites/laptop.yaml", Site),
    2,
)

SLEEP = "import time; print('up', flush=True); time.sleep(60)"
POLITE = (
    "import signal, sys, time\n"
    "signal.signal(signal.SIGTERM, lambda *_: (print('bye', flush=True), sys.exit(0)))\n"
    "print('up', flush=True); time.sleep(60)"
)
STUBBORN = (
    "import signal, time\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "print('up', flush=True); time.sleep(60)"
)
FAMILY = (
    "import subprocess, sys, time\n"
    f"subprocess.Popen([sys.executable, '-c', {STUBBORN!r}], start_new_session=True)\n"
    "print('up', flush=True); time.sleep(60)"
)
"""A rank whose worker has left its group and ignores TERM."""


def _is_up(log: Path) -> bool:
    return "up" in tail(log, 5)


class Server:
    """Small processes that stand for the ranks of a server on nodes n0, n1, each held by a holder."""

    def __init__(self, folder: Path, run_id: str) -> None:
        self.folder = folder
        self.run_id = run_id

    def ranks(self, *codes: str, stop_s: float = 5, program: str = sys.executable) -> Ranks:
        plans = [
            RankPlan(
                rank=number,
                role="headless" if number else "api",
                prefix=[],
                start=Command(
                    argv=[program, "-c", code],
                    env={leftovers.RUN_ID: "${RUN_ID}", leftovers.PART: str(number)},
                ),
                cleanup=[],
            )
            for number, code in enumerate(codes)
        ]
        readiness = PLAN.readiness.model_copy(update={"stop_s": stop_s})
        plan = PLAN.model_copy(update={"ranks": plans, "readiness": readiness})
        shared = {"RUN_ID": self.run_id, "MASTER_ADDR": "127.0.0.1"}
        values = [{**shared, "NODE": f"n{number}"} for number in range(len(codes))]
        return Ranks(plan, values, self.folder)

    def started(self, *codes: str, stop_s: float = 5) -> Ranks:
        """Ranks that are up."""
        ranks = self.ranks(*codes, stop_s=stop_s)
        ranks.start()
        for number in range(len(codes)):
            until(partial(_is_up, self.log(number)))
        return ranks

    def log(self, rank: int) -> Path:
        return self.folder / f"rank{rank}/server.log"

    def left(self) -> list[int]:
        return [process.pid for process in leftovers.processes_of(self.run_id)]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    run_id = new_run_id()
    with nothing_left(run_id):
        yield Server(tmp_path, run_id)


def failure(ranks: Ranks, stage: str = "boot") -> PointFailed:
    """What a watched server ends with."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            ranks.check(stage)
        except PointFailed as failed:
            return failed
        time.sleep(0.02)
    raise AssertionError("no rank's end was noticed")


def test_headless_ranks_start_first_and_rank_0_last(server: Server) -> None:
    ranks = server.started(SLEEP, SLEEP, SLEEP)
    assert [rank.plan.rank for rank in ranks.started] == [2, 1, 0]
    assert len(server.left()) == 3
    ranks.check("boot")
    ranks.stop()
    assert server.left() == []


@pytest.mark.parametrize(
    ("dying", "end", "told"),
    [(0, "sys.exit(3)", "exit code 3"), (1, "os.kill(os.getpid(), 9)", "signal SIGKILL")],
)
def test_the_end_of_any_rank_is_seen_with_rank_node_and_how(
    server: Server, dying: int, end: str, told: str
) -> None:
    codes = [SLEEP, SLEEP]
    codes[dying] = f"import os, sys; print('last words', flush=True); {end}"
    ranks = server.ranks(*codes)
    ranks.start()
    failed = failure(ranks, "ready")
    assert failed.stage == "ready"
    assert failed.reason == f"rank {dying} on node n{dying} ended by {told}"
    assert "last words" in failed.details
    assert str(server.log(dying)) in failed.details
    ranks.stop()
    assert server.left() == []


def test_a_rank_that_ends_well_has_ended_too_early_all_the_same(server: Server) -> None:
    ranks = server.ranks("pass")
    ranks.start()
    assert failure(ranks).reason == "rank 0 on node n0 ended by exit code 0"
    ranks.stop()


def test_a_cause_that_the_log_tells_is_told_with_the_end(server: Server) -> None:
    ranks = server.ranks("raise SystemExit('OSError: [Errno 98] Address already in use')")
    ranks.start()
    assert failure(ranks).reason.endswith("exit code 1: the port was taken by another process")
    ranks.stop()


def test_a_command_that_cannot_be_started_is_told_with_its_name(server: Server) -> None:
    ranks = server.ranks(SLEEP, program="/no/such/python")
    ranks.start()
    failed = failure(ranks)
    assert failed.reason == "rank 0 on node n0 ended by exit code 127: its command cannot be started"
    assert "/no/such/python" in failed.details
    ranks.stop()


def test_the_cause_may_stand_in_another_ranks_log(server: Server) -> None:
    broken = "print('IndexError: index 170 is out of bounds for dimension 0', flush=True); " + SLEEP
    ranks = server.started("print('up', flush=True)", broken)
    reason = failure(ranks, "replay").reason
    ranks.stop()
    assert reason.startswith("rank 0 on node n0 ended by exit code 0; rank 1 says: ")
    assert "block-count mismatch" in reason


def test_a_rank_that_heeds_term_ends_at_once_and_by_itself(server: Server) -> None:
    ranks = server.started(POLITE, POLITE, stop_s=30)
    began = time.monotonic()
    ranks.stop()
    assert time.monotonic() - began < 8
    assert [tail(server.log(number), 1) for number in (0, 1)] == ["bye", "bye"]
    assert server.left() == []


def test_a_rank_that_ignores_term_is_killed_after_the_grace(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    ranks = server.started(STUBBORN, POLITE, stop_s=0.5)
    with caplog.at_level("INFO", "serve_repro"):
        ranks.stop()
    assert "rank 0: killed after the grace: " in caplog.text
    assert "rank 1: killed" not in caplog.text
    assert tail(server.log(1), 1) == "bye"
    assert server.left() == []


def test_what_a_rank_started_ends_with_it_though_it_has_left_its_group(server: Server) -> None:
    ranks = server.started(FAMILY, stop_s=0.5)
    until(lambda: len(server.left()) == 2)
    ranks.stop()
    assert server.left() == []


def test_workers_of_a_rank_that_has_died_are_ended_too(server: Server) -> None:
    ranks = server.started(FAMILY.replace("time.sleep(60)", "sys.exit(1)"), stop_s=0.5)
    failure(ranks)
    ranks.stop()
    assert server.left() == []


def test_a_rank_that_has_dropped_its_mark_and_ignores_term_ends_all_the_same(server: Server) -> None:
    """As a program does that is started through `env -i`."""
    again = f"import os, sys; os.execve(sys.executable, [sys.executable, '-c', {STUBBORN!r}], {{}})"
    ranks = server.started(again, stop_s=0.3)
    pid = ranks.started[0].said["started"]["pid"]
    assert server.left() == []
    began = time.monotonic()
    ranks.stop()
    assert time.monotonic() - began < 8
    assert not alive(pid)


def test_a_rank_whose_holder_was_killed_is_noticed_and_ended_all_the_same(server: Server) -> None:
    ranks = server.started(SLEEP, POLITE)
    holder = next(rank for rank in ranks.started if rank.plan.rank == 0)
    holder.process.kill()
    assert failure(ranks).reason == "rank 0 on node n0 was lost with its holder (signal SIGKILL)"
    assert len(server.left()) == 2
    scratch = Path(holder.said["started"]["scratch"])
    assert scratch.is_dir()
    ranks.stop()
    assert server.left() == []
    assert not scratch.exists()


def test_a_holder_that_falls_silent_is_a_lost_rank(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a node or the network is gone: nothing ends, and nothing is heard."""
    monkeypatch.setattr(ranks_module, "CONSTANTS", CONSTANTS._replace(lost_after_s=0.5))
    ranks = server.started(POLITE)
    ranks.started[0].process.send_signal(signal.SIGSTOP)
    try:
        assert "has been silent for " in failure(ranks).reason
    finally:
        ranks.started[0].process.send_signal(signal.SIGCONT)
    ranks.stop()


def test_a_holder_that_does_not_answer_is_ended_and_told(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = CONSTANTS._replace(kill_grace_s=0.3, holder_grace_s=0.3)
    monkeypatch.setattr(ranks_module, "CONSTANTS", quick)
    ranks = server.started(POLITE, stop_s=0.3)
    ranks.started[0].process.send_signal(signal.SIGSTOP)
    with pytest.raises(PointFailed, match="stop: outlived the stop: rank 0: its holder did not end"):
        ranks.stop()
    assert server.left() == []


def test_a_stop_that_came_from_elsewhere_is_told_as_such(server: Server) -> None:
    ranks = server.started(POLITE)
    ranks.started[0].process.terminate()
    assert failure(ranks).reason == "rank 0 on node n0 was told to stop by somebody else (SIGTERM)"
    ranks.stop()
    assert server.left() == []


def test_stopping_what_never_started_and_stopping_twice_are_no_problem(server: Server) -> None:
    ranks = server.ranks(POLITE)
    ranks.stop()
    ranks.start()
    ranks.stop()
    ranks.stop()
    assert server.left() == []


def test_a_rank_sees_the_plans_environment_and_none_of_the_callers(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "secret")
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    ranks = server.started("import os; print(sorted(os.environ)); " + SLEEP)
    ranks.stop()
    told = tail(server.log(0), 5)
    assert leftovers.RUN_ID in told
    assert "'PATH'" in told
    assert "HF_TOKEN" not in told
    assert "PYTHONPATH" not in told


@pytest.mark.parametrize(
    ("code", "told"),
    [(0, "exit code 0"), (78, "exit code 78"), (-9, "signal SIGKILL"), (-250, "signal 250")],
)
def test_exits_are_told_in_words(code: int, told: str) -> None:
    assert describe_exit(code) == told


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("OSError: [Errno 98] Address already in use", "the port was taken"),
        ("RuntimeError: ... EADDRINUSE, message: address", "the port was taken"),
        ("OSError: [Errno 28] No space left on device: '/dev/shm/psm_x'", "a disk or /dev/shm is full"),
        ("torch.OutOfMemoryError: HIP out of memory. Tried to allocate", "GPU memory ran out"),
        ("Memory access fault by GPU node-1 on address", "a GPU kernel touched foreign memory"),
        ("OSError: [Errno 12] Cannot allocate memory", "host memory ran out"),
        ("serve_repro_hooks: cpu-x is not installed: RuntimeError: y", "a patch refused to install"),
        (
            "DistStoreError: Timed out after 61 seconds waiting for clients",
            "did not join the rendezvous",
        ),
        ("IndexError: index 1024 is out of bounds for dimension 0", "block-count mismatch"),
        ("vllm: error: unrecognized arguments: --no-such-flag", "does not know a flag"),
        ("ValueError: Free memory on device (3/191 GiB) on startup is less than desired", "holds GPU"),
        ("INFO 12-01 [api_server.py] everything is fine", None),
    ],
)
def test_known_causes_are_read_from_real_lines(tmp_path: Path, line: str, cause: str | None) -> None:
    log = tmp_path / "server.log"
    log.write_text(f"INFO before\n{line}\nINFO after\n", encoding="utf-8")
    found = known_cause(log)
    assert found is cause if cause is None else found is not None and cause in found


@pytest.mark.parametrize(("lines", "shown"), [(2, "b\nc"), (9, "a\nb\nc")])
def test_the_tail_of_a_log_is_its_last_lines(tmp_path: Path, lines: int, shown: str) -> None:
    log = tmp_path / "server.log"
    log.write_text("a\nb\nc\n", encoding="utf-8")
    assert tail(log, lines) == shown


def test_a_log_that_is_not_there_or_not_text_is_no_problem(tmp_path: Path) -> None:
    assert tail(tmp_path / "none.log", 5) == ""
    assert known_cause(tmp_path / "none.log") is None
    (tmp_path / "bytes.log").write_bytes(b"\xff\xfe\n" * 200_000 + b"No space left on device\n")
    assert known_cause(tmp_path / "bytes.log") == "a disk or /dev/shm is full"
