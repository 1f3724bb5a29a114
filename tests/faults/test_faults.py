"""Each fault is told by its own gate, and none leaves a row that could be taken for a result."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from tests.end_to_end.conftest import assert_nothing_left, read

from .conftest import LANES, MORE_TRACES, Bench, Fault, Measured, assert_no_row

GAPS = {"name": "made-gaps", "entries": 6, "made": MORE_TRACES["made-gaps"]}

FAULTS = {
    "none": Fault(),
    "errors-under-the-limit": Fault({"kind": "status_500", "every": 20}),
    "errors-over-the-limit": Fault({"kind": "status_500", "every": 3}),
    "error-in-a-200-stream": Fault({"kind": "sse_error", "every": 5}),
    "connection-cut": Fault({"kind": "cut", "every": 3}),
    "half-the-tokens": Fault({"kind": "half", "every": 5}),
    "half-the-tokens-counted": Fault({"kind": "counters_half"}),
    "no-tokens": Fault({"kind": "zero", "every": 5}),
    "subagents-warmup-failed": Fault({"kind": "subagents_warmup"}),
    "client-interrupted": Fault(signal=signal.SIGINT),
    "client-terminated": Fault(signal=signal.SIGTERM),
    "point-interrupted": Fault(signal=signal.SIGINT, to="point"),
    "point-terminated": Fault(signal=signal.SIGTERM, to="point"),
    "tail-dropped": Fault({"kind": "hang", "after_s": 10}),
    "lanes-dead": Fault(replay={"dataset": GAPS, "trace_idle_gap_cap_s": 300}),
    "metrics-gone-for-a-while": Fault({"kind": "metrics_gone", "after_s": 1, "for_s": 13}),
    "metrics-gone-for-good": Fault({"kind": "metrics_gone", "after_s": 2}),
    "metrics-of-another-model": Fault({"kind": "other_model", "always": True}),
    "metrics-turn-to-another-model": Fault({"kind": "other_model", "after_s": 5}),
}
"""What goes wrong, by name."""

Measure = Callable[[str], Measured]

ABORTED = ("errors-over-the-limit", "connection-cut", "no-tokens")
"""Those that make the client itself give up, with an exit code of its own."""

TOLD = {
    "errors-over-the-limit": {"errors", "not_cancelled"},
    "error-in-a-200-stream": {"errors", "completed"},
    "connection-cut": {"errors", "not_cancelled"},
    "half-the-tokens": {"output_length"},
    "half-the-tokens-counted": {"tokens"},
    "no-tokens": {"errors"},
    "subagents-warmup-failed": {"warmup"},
    "client-interrupted": {"not_cancelled"},
    "tail-dropped": {"dropped"},
    "lanes-dead": {"lanes"},
    "metrics-gone-for-a-while": {"server_metrics"},
    "metrics-gone-for-good": {"server_metrics"},
    "metrics-turn-to-another-model": {"metrics_model"},
}
"""The gates that must fail, where a replay is judged."""

EARLY = {
    "client-terminated": ("failed", "the client ended by signal SIGTERM"),
    "point-interrupted": ("interrupted", "interrupted by SIGINT"),
    "point-terminated": ("interrupted", "interrupted by SIGTERM"),
    "metrics-of-another-model": ("failed", "metrics_model fail: metrics of someone/else"),
}
"""(status, reason) of faults that end a point before it is judged."""


ALONE = ["half-the-tokens", "subagents-warmup-failed", "lanes-dead", "metrics-gone-for-a-while"]
"""Those that nothing but their gate tells."""


NIGHTLY = {
    "errors-under-the-limit",
    "connection-cut",
    "half-the-tokens-counted",
    "no-tokens",
    "client-interrupted",
    "client-terminated",
    "point-terminated",
    "metrics-turn-to-another-model",
}
"""Each is a run of the real client; by day another fault of that gate, or its unit test, tells of it."""


def by_day(names: Iterable[str]) -> list[Any]:
    """The faults as parameters, with their marks."""
    return [pytest.param(name, marks=[pytest.mark.nightly] * (name in NIGHTLY)) for name in names]


@pytest.mark.parametrize("fault", by_day(["none", "errors-under-the-limit"]))
def test_what_is_within_limits_is_valid(measured: Measure, fault: str) -> None:
    result = measured(fault)
    assert result.code == 0, result.output[-3000:]
    assert read(result.folder / "replay.json")["status"] == "valid"
    assert result.gates() == {}
    assert_nothing_left(result.attempt)
    errors = next(gate for gate in result.point["gates"] if gate["gate"] == "errors")
    assert errors["seen"].startswith("0 failed") == (fault == "none")


@pytest.mark.parametrize("fault", by_day(TOLD))
def test_a_fault_is_told_by_its_gate(bench: Bench, measured: Measure, fault: str) -> None:
    result = measured(fault)
    status = "failed" if fault in ABORTED else "invalid"
    assert result.point["status"] == status, result.output[-3000:]
    failed = {gate for gate, outcome in result.gates().items() if outcome == "fail"}
    assert failed >= TOLD[fault], json.dumps(result.point["gates"], indent=1)
    row = assert_no_row(bench, fault, LANES, result)
    assert row["status"] == status
    for gate in TOLD[fault]:
        assert f"{gate} fail: " in row["reason"]
        assert f"{gate} fail: " in result.output


@pytest.mark.parametrize("fault", by_day(EARLY))
def test_what_ends_a_point_early_is_told(bench: Bench, measured: Measure, fault: str) -> None:
    result = measured(fault)
    row = assert_no_row(bench, fault, LANES, result)
    status, reason = EARLY[fault]
    assert row["status"] == status, result.output[-3000:]
    assert reason in row["reason"]


@pytest.mark.parametrize("fault", by_day(ALONE))
def test_only_its_own_gate_sees_it(measured: Measure, fault: str) -> None:
    """The client's exit code and every other gate are fine: without this gate, it would be a row."""
    assert set(measured(fault).gates()) == TOLD[fault]
