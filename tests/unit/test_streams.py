"""Large exports are read as streams, and exactly."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from serve_repro.client.artifacts import Record, records, sampled, totals
from serve_repro.client.kept import Kept
from serve_repro.client.lanes import Span, sessions
from serve_repro.client.series import read_series
from serve_repro.client.server_series import longest_unsampled_s
from serve_repro.errors import UserError

from .attempts import START, S, good_rows, record, write_artifacts, write_series

EXPORT = "server_metrics_export.json"


def test_records_come_back_as_they_were_kept(tmp_path: Path) -> None:
    rows = [
        *good_rows(),
        record(tokens=None, ttft_ms=None, itl_ms=None),
        record(error={"type": "RequestTimeout"}, subagent=True),
        record(length_off_pct=-50.0, tree="tree-2"),
    ]
    rows[0]["metadata"].pop("root_correlation_id")
    found = list(records(write_artifacts(tmp_path, rows)))
    kept = Kept(found)
    assert list(kept) == found
    assert list(kept) == found, "it is read as often as wanted"
    assert [type(one.input_tokens) for one in kept] == [type(one.input_tokens) for one in found]
    assert list(Kept([])) == []


def test_a_record_is_kept_in_less_than_100_bytes() -> None:
    def made(count: int) -> Any:
        for number in range(count):
            end = START + number
            tree = f"tree-{number % 9}"
            yield Record(True, None, START, end, 1, number, 0.5, 1.5, 2.5, tree, False, 0, 1.5)

    tracemalloc.start()
    try:
        kept, before = Kept(made(100)), tracemalloc.get_traced_memory()[0]
        kept = Kept(made(5_000))
        grew = tracemalloc.get_traced_memory()[0] - before
        spans = sessions(kept)
        spans_grew = tracemalloc.get_traced_memory()[0] - before - grew
    finally:
        tracemalloc.stop()
    assert grew < 100 * 5_000
    assert spans_grew < 20 * 5_000
    assert totals(kept).completed == 5_000
    assert list(spans.trees["tree-3"])[:2] == [Span(START, START + 3), Span(START, START + 12)]


def test_memory_for_one_metric_does_not_grow_with_the_others(tmp_path: Path) -> None:
    """A few hundred kilobytes of slices that nobody asks for, before and after the wanted one."""
    other = {"series": [{"timeslices": [{"start_ns": n, "buckets": {"1.0": n}} for n in range(9000)]}]}
    wanted = {"series": [{"stats": {"avg": 1.0}}, {"stats": {"avg": 2.0}}]}
    metrics = {"a": other, "wanted": wanted, "z": other}
    (tmp_path / EXPORT).write_text(json.dumps({"metrics": metrics, "warmup_metrics": metrics}))
    size = (tmp_path / EXPORT).stat().st_size
    tracemalloc.start()
    try:
        assert sampled(tmp_path, "wanted") == {"stats": {"avg": 1.0}}, "of the first series"
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < size / 4
    assert sampled(tmp_path, "absent") is None


def test_times_in_nanoseconds_stay_exact(tmp_path: Path) -> None:
    write_series(tmp_path, [0, 1])
    found = sampled(tmp_path, "vllm:num_requests_running")
    assert found is not None
    assert found["timeslices"][1] == {"start_ns": START + S, "end_ns": START + 2 * S}


def test_counters_are_told_by_their_rate_and_gauges_by_their_mean(tmp_path: Path) -> None:
    def metric(begin: int, **values: float) -> dict[str, Any]:
        return {"series": [{"timeslices": [{"start_ns": begin, "end_ns": begin + S, **values}]}]}

    metrics = {
        "counter": metric(START + S, rate=3, total=9),
        "gauge": metric(START, avg=0.5),
        "neither": metric(START, count=2),
        "empty": {"series": []},
    }
    (tmp_path / EXPORT).write_text(json.dumps({"metrics": metrics}))
    found = read_series(tmp_path, [*metrics, "absent"])
    assert found == {
        "counter": ([1.5], [3.0]),
        "gauge": ([0.5], [0.5]),
        "neither": ([], []),
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"metrics": {"vllm:num_requests_running": {"series": [', "is not valid JSON"),
        (
            '{"metrics": {"vllm:num_requests_running": {"series": [{"timeslices": '
            '[{"start_ns": 1, "end_ns": 2}]}]}}}',
            "does not tell when the window was",
        ),
    ],
)
def test_a_damaged_export_is_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / EXPORT).write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=rf"{EXPORT}: {message}"):
        longest_unsampled_s(tmp_path)
