"""Nodes are visited the way their ranks are started, quickly, and with their clocks."""

from __future__ import annotations

import io
import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from serve_repro.gates.evidence import Evidence, collect
from serve_repro.gates.server import clock_skew
from serve_repro.launch.failure import PointFailed
from serve_repro.launch.ranks import Rank, Ranks
from serve_repro.nodes import visit
from serve_repro.nodes.checks import Check
from serve_repro.nodes.visit import Clock, Visit, measure_clock, visit_all
from serve_repro.plan.model import Plan
from serve_repro.point import measure

from .attempts import write_attempt
from .plans import plan_of


@pytest.fixture
def plan() -> Plan:
    return plan_of("tiny-cpu-tp1pp2", "laptop", 2)


def reached_by(plan: Plan, *prefix: str) -> Plan:
    """The plan with other words that bring a command to a node."""
    ranks = [rank.model_copy(update={"prefix": list(prefix)}) for rank in plan.ranks]
    return plan.model_copy(update={"ranks": ranks})


def test_this_machine_is_looked_at_once_in_under_two_seconds(plan: Plan) -> None:
    began = time.monotonic()
    (found,) = visit_all(plan, ["localhost", "localhost"], {})
    assert time.monotonic() - began < 2
    assert {check.check for check in found.checks} == {"free_space", "leftovers"}
    assert found.clock is not None
    assert abs(found.clock.offset_s) < found.clock.round_trip_s + 0.01
    json.dumps(found.document())


def test_the_nodes_own_words_bring_the_probe_there(plan: Plan, tmp_path: Path) -> None:
    shell = 'echo "$$0" >> "$$1"; shift; exec "$$@"'
    there = reached_by(plan, "sh", "-c", shell, "${NODE}", str(tmp_path / "visited"))
    assert [found.node for found in visit_all(there, ["n0", "n1"], {})] == ["n0", "n1"]
    assert sorted((tmp_path / "visited").read_text(encoding="utf-8").split()) == ["n0", "n1"]


def test_a_node_that_cannot_be_reached_is_told_with_the_runners_words(plan: Plan) -> None:
    gone = reached_by(plan, "sh", "-c", "echo srun: error: Node failure on $$0 >&2; exit 1", "${NODE}")
    (found,) = visit_all(gone, ["n1"], {})
    (check,) = found.checks
    assert (check.check, check.outcome, found.clock) == ("reachable", "fail", None)
    assert "srun: error: Node failure on n1" in check.seen


def test_a_node_that_says_nothing_costs_no_more_than_the_limit(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(visit, "LIMIT_S", 0.3)
    began = time.monotonic()
    (found,) = visit_all(reached_by(plan, "sh", "-c", "exec sleep 60"), ["n1"], {})
    assert found.checks[0].check == "reachable"
    (found,) = visit_all(reached_by(plan, "/nowhere/srun"), ["n1"], {})
    assert "/nowhere/srun" in found.checks[0].seen
    assert time.monotonic() - began < 5


def test_the_quickest_of_the_round_trips_tells_the_offset() -> None:
    class Answers(io.StringIO):
        """A clock 5 s ahead; the first two answers are slow."""

        waits = iter([0.2, 0.1, 0.0])

        def readline(self, *_: object) -> str:  # type: ignore[override]
            there = time.time() + 5
            time.sleep(next(self.waits))
            return f"{there}\n"

    clock = measure_clock(io.StringIO(), Answers())
    assert clock.round_trip_s < 0.05
    assert clock.offset_s == pytest.approx(5, abs=0.05)


@pytest.fixture
def good(plan: Plan, tmp_path: Path) -> Evidence:
    folder = write_attempt(tmp_path / "attempt", [])
    return collect(folder, len(plan.ranks), folder / "patches")


@pytest.mark.parametrize(
    ("offset", "trip", "outcome"),
    [
        (0.4, 0.01, "pass"),
        (-0.4, 0.01, "pass"),
        (1.2, 0.01, "fail"),
        (-3.0, 0.01, "fail"),
        (0.4, 3.0, "unknown"),
        (2.0, 3.0, "unknown"),
        (4.0, 3.0, "fail"),
    ],
)
def test_clocks_may_differ_by_a_second(
    plan: Plan, good: Evidence, offset: float, trip: float, outcome: str
) -> None:
    here = {"offset_s": 0.0, "round_trip_s": 0.0002}
    there = {"offset_s": offset, "round_trip_s": trip}
    found = clock_skew(plan, good._replace(clocks={"n0": here, "n1": there}))
    assert (found.gate, found.outcome) == ("clock_skew", outcome)


def test_a_clock_that_was_not_compared_is_unknown(plan: Plan, good: Evidence) -> None:
    assert clock_skew(plan, good).outcome == "pass"
    assert clock_skew(plan, good._replace(clocks={})).outcome == "unknown"
    found = clock_skew(plan, good._replace(clocks={"n0": good.clocks["n0"], "n1": None}))
    assert (found.outcome, "node n1" in found.seen) == ("unknown", True)


def test_an_unfit_node_ends_the_point_before_anything_is_started(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broken node should not be tried again soon; a busy one may be."""
    broken = Visit("n0", [Check("gpus", "fail", "7 GPUs"), Check("vram_free", "unknown", "?")], None, {})
    busy = Visit("n1", [Check("gpus_idle", "fail", "process 5 holds 4 MiB")], Clock(0.0, 0.1), {})
    monkeypatch.setattr(measure, "visit_all", lambda *_: [broken, busy])
    with pytest.raises(PointFailed) as failure:
        measure.look_at_nodes(plan, ["n0", "n1"], [{}, {}], tmp_path)
    assert failure.value.stage == "nodes"
    assert failure.value.reason == (
        "node n0 is not fit: gpus: 7 GPUs; node n1 is not fit: gpus_idle: process 5 holds 4 MiB"
    )
    assert failure.value.bad_nodes == {"n0": "gpus: 7 GPUs"}
    saved = json.loads((tmp_path / "nodes.json").read_text(encoding="utf-8"))
    assert [entry["node"] for entry in saved] == ["n0", "n1"]


def test_a_silent_ranks_node_should_not_be_tried_again_soon(plan: Plan, tmp_path: Path) -> None:
    """A rank that ended by itself says nothing against its node."""

    def told(*, silent: bool) -> dict[str, str]:
        ranks = Ranks(plan, [], tmp_path)
        rank = SimpleNamespace(
            plan=plan.ranks[1],
            node="n1",
            folder=tmp_path,
            problem=lambda: "is not well",
            silent=lambda: silent,
        )
        ranks.started = cast("list[Rank]", [rank])
        with pytest.raises(PointFailed, match="rank 1 on node n1 is not well") as failure:
            ranks.check("replay")
        return failure.value.bad_nodes

    assert told(silent=True) == {"n1": "rank 1 is not well"}
    assert told(silent=False) == {}
