"""Ranks as processes: started in order, watched, and stopped as a whole, whatever they do."""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest

from serve_repro.command import Command
from serve_repro.launch import leftovers
from serve_repro.launch.causes import known_cause, tail
from serve_repro.launch.failure import PointFailed
from serve_repro.launch.ranks import Ranks, describe_exit
from serve_repro.plan.model import RankPlan

from .processes import new_run_id, nothing_left, until

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
    """Two small processes that stand for the ranks of a server on nodes n0 and n1."""

    def __init__(self, folder: Path, run_id: str) -> None:
        self.folder = folder
        self.run_id = run_id

    def ranks(
        self, *codes: str, cleanup: list[list[str]] | None = None, program: str = sys.executable
    ) -> Ranks:
        plans = [
            RankPlan(
                rank=number,
                node=f"n{number}",
                role="headless" if number else "api",
                start=Command(
                    argv=[program, "-c", code], env={leftovers.RUN_ID: "${RUN_ID}", "MINE": "1"}
                ),
                cleanup=[Command(argv=argv) for argv in cleanup or []],
            )
            for number, code in enumerate(codes)
        ]
        values = [{"RUN_ID": self.run_id, "FOLDER": str(self.folder)} for _ in codes]
        return Ranks(plans, values, self.folder, self.run_id)

    def started(self, *codes: str, cleanup: list[list[str]] | None = None) -> Ranks:
        """Ranks that are up."""
        ranks = self.ranks(*codes, cleanup=cleanup)
        ranks.start()
        for number in range(len(codes)):
            until(partial(_is_up, ranks.log(number)))
        return ranks

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
    pids = [rank.process.pid for rank in ranks.started]
    assert sorted(server.left()) == sorted(pids)
    ranks.check("boot")
    ranks.stop(5)


@pytest.mark.parametrize("dying", [0, 1])
@pytest.mark.parametrize(
    ("end", "told"),
    [("sys.exit(3)", "exit code 3"), ("os.kill(os.getpid(), 9)", "signal SIGKILL")],
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
    assert str(ranks.log(dying)) in failed.details
    ranks.stop(5)
    assert server.left() == []


def test_a_rank_that_ends_well_has_ended_too_early_all_the_same(server: Server) -> None:
    ranks = server.ranks(SLEEP, "pass")
    ranks.start()
    assert failure(ranks).reason == "rank 1 on node n1 ended by exit code 0"
    ranks.stop(5)


def test_a_cause_that_the_log_tells_is_told_with_the_end(server: Server) -> None:
    ranks = server.ranks("raise SystemExit('OSError: [Errno 98] Address already in use')", SLEEP)
    ranks.start()
    assert failure(ranks).reason.endswith("exit code 1: the port was taken by another process")
    ranks.stop(5)


def test_a_command_that_cannot_be_started_is_a_failed_point(server: Server) -> None:
    ranks = server.ranks(SLEEP, SLEEP, program="/no/such/python")
    with pytest.raises(PointFailed, match=r"rank 1 on node n1 cannot be started: .*/no/such/python"):
        ranks.start()
    ranks.stop(5)
    assert server.left() == []


def test_a_rank_that_heeds_term_ends_at_once_and_by_itself(server: Server) -> None:
    ranks = server.started(POLITE, POLITE)
    began = time.monotonic()
    ranks.stop(30)
    assert time.monotonic() - began < 5
    assert [tail(ranks.log(number), 1) for number in (0, 1)] == ["bye", "bye"]
    assert server.left() == []


def test_a_rank_that_ignores_term_is_killed_after_the_grace(server: Server) -> None:
    ranks = server.started(STUBBORN, POLITE)
    began = time.monotonic()
    ranks.stop(0.5)
    assert 0.5 <= time.monotonic() - began < 5
    assert tail(ranks.log(1), 1) == "bye"
    assert server.left() == []


def test_what_a_rank_started_ends_with_it_though_it_has_left_its_group(server: Server) -> None:
    ranks = server.started(FAMILY, SLEEP)
    until(lambda: len(server.left()) == 3)
    ranks.stop(0.5)
    assert server.left() == []


def test_workers_of_a_rank_that_has_died_are_ended_too(server: Server) -> None:
    ranks = server.started(FAMILY.replace("time.sleep(60)", "sys.exit(1)"), SLEEP)
    failure(ranks)
    ranks.stop(0.5)
    assert server.left() == []


def test_a_rank_that_has_dropped_its_mark_and_ignores_term_ends_all_the_same(server: Server) -> None:
    """As a program does that is started through `env -i`."""
    again = f"import os, sys; os.execve(sys.executable, [sys.executable, '-c', {STUBBORN!r}], {{}})"
    ranks = server.started(again)
    assert server.left() == []
    ranks.stop(0.3)
    assert ranks.started[0].process.returncode == -9


def test_a_process_that_was_forked_while_the_others_were_killed_is_ended_too(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the list of what is left and its KILL, a process may fork once more."""
    kill = leftovers.kill

    def kill_late(processes: list[psutil.Process], grace_s: float) -> list[psutil.Process]:
        if processes and not late:
            late.append(server.ranks(SLEEP))
            late[0].start()
        return kill(processes, grace_s)

    late: list[Ranks] = []
    ranks = server.started(STUBBORN)
    monkeypatch.setattr(leftovers, "kill", kill_late)
    ranks.stop(0.2)
    assert late
    assert server.left() == []


def test_stopping_what_never_started_is_no_problem(server: Server) -> None:
    server.ranks(SLEEP, SLEEP).stop(5)


def test_stopping_twice_is_no_problem(server: Server) -> None:
    ranks = server.started(POLITE)
    ranks.stop(5)
    ranks.stop(5)


def test_clean_up_commands_run_for_each_rank_and_may_fail(server: Server) -> None:
    said = server.folder / "said"
    add = [sys.executable, "-c", f"open({str(said)!r}, 'a').write('x')"]
    ranks = server.started(POLITE, POLITE, cleanup=[["false"], add])
    ranks.stop(5)
    assert said.read_text(encoding="utf-8") == "xx"


def test_a_rank_sees_the_plans_environment_and_none_of_the_callers(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "secret")
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    ranks = server.started(
        "import os, time; print(sorted(os.environ), 'up', flush=True); time.sleep(60)"
    )
    ranks.stop(5)
    told = tail(ranks.log(0), 5)
    assert "'MINE'" in told
    assert "'PATH'" in told
    assert "HF_TOKEN" not in told
    assert "PYTHONPATH" not in told


def maps(path: Path, code: str) -> str:
    """A rank that maps a file of shared memory and goes on with some code."""
    return (
        "import mmap, os, signal, time\n"
        f"stream = open({str(path)!r}, 'w+b'); stream.truncate(4096)\n"
        f"mapped = mmap.mmap(stream.fileno(), 4096); {code}"
    )


@pytest.fixture
def memory() -> Iterator[Path]:
    path = Path(f"/dev/shm/serve-repro-unit-{uuid.uuid4().hex}")
    yield path
    path.unlink(missing_ok=True)


def test_shared_memory_of_a_killed_rank_is_removed(server: Server, memory: Path) -> None:
    code = maps(memory, "signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(60)")
    ranks = server.started(code, SLEEP)
    assert memory.exists()
    ranks.stop(0.3)
    assert not memory.exists()


def test_shared_memory_of_a_rank_that_crashed_is_removed(server: Server, memory: Path) -> None:
    """It is noted while the rank lives, since nothing tells afterwards whose it was."""
    ranks = server.started(maps(memory, "print('up', flush=True); time.sleep(60)"), SLEEP)
    ranks.check("boot")
    ranks.started[1].process.kill()
    failure(ranks)
    assert memory.exists()
    ranks.stop(5)
    assert not memory.exists()


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
