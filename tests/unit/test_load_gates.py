"""Gates on the load, and what they read: lanes, the client's log, its samples of the server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from serve_repro.client.artifacts import records, totals
from serve_repro.client.lanes import Sessions, Span, lanes_alive, sessions
from serve_repro.client.phases import Phase, read_phases
from serve_repro.client.server_series import longest_unsampled_s
from serve_repro.gates import load
from serve_repro.gates.evidence import Evidence, collect
from serve_repro.plan.model import Plan

from .attempts import CLIENT_LOG, START, S, record, write_artifacts, write_attempt, write_series
from .plans import plan_of


@pytest.fixture(scope="module")
def plan() -> Plan:
    """Two lanes, a window of 20 s, silences of at most 5 s."""
    return plan_of("tiny-cpu-tp1pp2", "laptop", 2)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    folder = write_attempt(tmp_path_factory.mktemp("attempt"), [])
    return collect(folder, 2, folder / "patches")


def alive(
    *trees: list[tuple[float, float]], lanes: int = 2, window_s: float = 20
) -> tuple[float, float]:
    """(mean, share) of trees with requests from and to these seconds; gap 5 s, margin 2 s."""
    spans = {
        str(number): [Span(round(start * S), round(end * S)) for start, end in tree]
        for number, tree in enumerate(trees)
    }
    found = lanes_alive(Sessions(0, spans), lanes, window_s, 5, 2)
    return round(found.mean_alive, 3), round(found.all_alive, 3)


EVERY_5_S = [(0.0, 1.0), (5.0, 6.0), (10.0, 11.0), (15.0, 16.0)]


@pytest.mark.parametrize(
    ("second", "mean", "share"),
    [
        (EVERY_5_S, 2.0, 1.0),
        ([(0, 20)], 2.0, 1.0),  # one long request
        ([(0, 31)], 2.0, 1.0),  # that the drain waits for
        ([], 1.0, 0.0),  # a lane that never sent
        ([(-5, -4)], 1.0, 0.0),  # only in the warm-up
        ([(-40, -39), (4, 13)], 2.0, 1.0),  # what is before the window is no silence
        ([(-40, -39), (8, 13)], 1.6, 0.6),  # 8 s of the window are
        ([(0, 2), (9, 13)], 2.0, 1.0),  # as long as a lane may be silent
        ([(0, 2), (10, 13)], 1.7, 0.7),  # longer: it was dead from 4 s on
        ([(0, 12)], 1.7, 0.7),  # dead at the end
        ([(0, 13)], 2.0, 1.0),  # perhaps only silent
    ],
)
def test_lanes_are_alive_while_their_trees_are(
    second: list[tuple[float, float]], mean: float, share: float
) -> None:
    trees = [EVERY_5_S, second] if second else [EVERY_5_S]
    assert alive(*trees) == (mean, share)


def test_a_lane_takes_one_tree_after_another() -> None:
    assert alive(EVERY_5_S, [(0, 4)], [(4.5, 11)], [(13, 20)]) == (2.0, 1.0)
    assert alive(EVERY_5_S, [(0, 4)], [(8, 20)]) == (1.9, 0.9)


def test_more_trees_than_lanes_make_no_lane_more_alive() -> None:
    assert alive([(0, 10)], [(0, 10)], [(0, 10)]) == (1.2, 0.6)


def test_sessions_are_read_by_tree_with_the_warm_up(tmp_path: Path) -> None:
    rows = [
        record("warmup", 0, 1, tree="a"),
        record(start_s=3, end_s=4, tree="b"),
        record(start_s=2, end_s=5, tree="a", error={"type": "x"}),
    ]
    found = sessions(records(write_artifacts(tmp_path, rows)))
    assert found.start == START + 2 * S
    assert {tree: len(list(spans)) for tree, spans in found.trees.items()} == {"a": 2, "b": 1}


def test_lanes(plan: Plan, good: Evidence) -> None:
    def outcome(found: Sessions) -> str:
        return load.lanes(plan, good._replace(sessions=found)).outcome

    whole = [Span(0, 20 * S)]
    assert (plan.concurrency, plan.client.lane_gap_s) == (2, 5)
    assert outcome(Sessions(0, {"a": whole, "b": whole})) == "pass"
    assert outcome(Sessions(0, {"a": whole, "b": [Span(round(0.4 * S), 20 * S)]})) == "pass"
    assert outcome(Sessions(0, {"a": whole, "b": [Span(round(0.5 * S), 20 * S)]})) == "fail"
    assert outcome(Sessions(0, {"a": whole})) == "fail"
    assert outcome(Sessions(None, {"a": whole})) == "unknown"
    assert outcome(Sessions(0, {})) == "unknown"


@pytest.mark.parametrize(
    ("changes", "cancelled", "outcome"),
    [
        ({}, 0, "pass"),
        ({"warmup_failed": 1, "warmup_subagents_failed": 1}, 0, "fail"),
        ({"warmup_no_output": 1}, 0, "fail"),
        ({}, 1, "fail"),
        ({}, None, "unknown"),
    ],
)
def test_warmup(
    plan: Plan, good: Evidence, changes: dict[str, Any], cancelled: int | None, outcome: str
) -> None:
    phases = {} if cancelled is None else {"warmup": Phase(cancelled=cancelled)}
    evidence = good._replace(totals=good.totals._replace(**changes), phases=phases)
    assert load.warmup(plan, evidence).outcome == outcome


def test_a_subagents_failure_in_the_warm_up_is_counted(tmp_path: Path) -> None:
    failed: dict[str, Any] = {"error": {"type": "HTTP"}, "subagent": True}
    rows = [record("warmup", **failed), record("warmup"), record(**failed), record()]
    found = totals(records(write_artifacts(tmp_path, rows)))
    assert (found.warmup, found.warmup_failed, found.warmup_subagents_failed) == (2, 1, 1)


def test_output_length(plan: Plan, good: Evidence, tmp_path: Path) -> None:
    rows = [
        record(length_off_pct=0.0),
        record(length_off_pct=-50.0),
        record("warmup", length_off_pct=9.0),
    ]
    found = totals(records(write_artifacts(tmp_path, rows)))
    assert (found.length_told, found.length_off) == (2, 1)
    for told, off, outcome in ((2, 1, "fail"), (2, 0, "pass"), (0, 0, "unknown")):
        changed = good.totals._replace(length_told=told, length_off=off)
        assert load.output_length(plan, good._replace(totals=changed)).outcome == outcome


def test_dropped(plan: Plan, good: Evidence) -> None:
    """One in a hundred may be given up."""

    def outcome(phase: Phase) -> str:
        return load.dropped(plan, good._replace(phases={"profiling": phase})).outcome

    assert outcome(Phase(completed=100, cancelled=0)) == "pass"
    assert outcome(Phase(completed=99, cancelled=1)) == "pass"
    assert outcome(Phase(completed=98, cancelled=1)) == "fail"
    assert outcome(Phase(sent=100)) == "unknown"


def test_phases_are_read_from_the_clients_log(tmp_path: Path) -> None:
    log = tmp_path / "client.log"
    text = CLIENT_LOG.replace("completed=3, cancelled=0", "completed=1,203, cancelled=14")
    log.write_text(f"Phase x\n{text}", encoding="utf-8")
    assert read_phases(log) == {"warmup": Phase(1, 1, 0), "profiling": Phase(3, 1203, 14)}


@pytest.mark.parametrize(
    ("sampled", "longest"),
    [
        (list(range(20)), 0),
        ([*range(4), *range(15, 20)], 11),
        (list(range(8)), 12),
        (list(range(12, 20)), 12),
        ([], None),
    ],
)
def test_time_without_metrics(tmp_path: Path, sampled: list[int], longest: float | None) -> None:
    write_series(tmp_path, sampled)
    assert longest_unsampled_s(tmp_path) == longest


def test_a_client_that_never_saw_metrics_has_no_export_of_them(tmp_path: Path) -> None:
    assert longest_unsampled_s(tmp_path) is None


def test_server_metrics(plan: Plan, good: Evidence) -> None:
    def outcome(unsampled_s: float | None, **changes: Any) -> str:
        return load.server_metrics(plan, good._replace(unsampled_s=unsampled_s, **changes)).outcome

    assert outcome(10.0) == "pass"
    assert outcome(10.1) == "fail"
    assert outcome(0.0, after={}) == "fail"
    assert outcome(None) == "unknown"


def test_an_attempt_whose_metrics_were_gone_at_its_end_is_judged_all_the_same(
    plan: Plan, tmp_path: Path
) -> None:
    folder = write_attempt(tmp_path, [])
    (folder / "metrics_after.txt").unlink()
    found = collect(folder, 2, folder / "patches")
    assert found.after == {}
    assert load.server_metrics(plan, found).outcome == "fail"
