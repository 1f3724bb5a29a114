"""What the client and the server leave: read, counted, and turned into numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from serve_repro.client.artifacts import activity, aggregate, records, totals
from serve_repro.client.phases import Phase
from serve_repro.client.server_metrics import grown, labels_of, read_counters
from serve_repro.documents import write_json
from serve_repro.errors import UserError
from serve_repro.table.metrics import (
    PERCENTILES,
    accounting,
    gauge_metrics,
    request_metrics,
    server_metrics,
    theoretical_hits,
)
from serve_repro.table.rows import row, summary

from .attempts import INFOS, START, S, good_rows, metrics_text, record, write_artifacts, write_point

TIMEOUT = {"code": 408, "type": "RequestTimeout", "message": "too late"}


def test_a_record_is_read_with_its_times_and_tokens(tmp_path: Path) -> None:
    write_artifacts(tmp_path, [record(start_s=1.5, end_s=2.0, tokens=(2022, 20), itl_ms=12.5)])
    (one,) = records(tmp_path)
    assert one.profiled
    assert one.error is None
    assert (one.start_ns, one.end_ns) == (START + 1_500_000_000, START + 2 * S)
    assert (one.input_tokens, one.output_tokens) == (2022, 20)
    assert (one.ttft_ms, one.itl_ms, one.e2e_ms) == (200.0, 12.5, 500.0)


def test_what_the_client_has_no_value_for_is_none_and_not_zero(tmp_path: Path) -> None:
    write_artifacts(tmp_path, [record(tokens=None, ttft_ms=None, itl_ms=None)])
    (one,) = records(tmp_path)
    assert (one.input_tokens, one.output_tokens, one.ttft_ms, one.itl_ms) == (None,) * 4


@pytest.mark.parametrize(
    ("row", "kind"),
    [
        (record(error=TIMEOUT), "RequestTimeout"),
        (record(error={"code": 500}), "500"),
        (record(error={"message": "?"}), "error"),
        (record(cancelled=True), "cancelled"),
        (record(error=TIMEOUT, cancelled=True), "RequestTimeout"),
    ],
)
def test_errors_have_a_kind(tmp_path: Path, row: dict[str, object], kind: str) -> None:
    write_artifacts(tmp_path, [row])
    assert next(records(tmp_path)).error == kind


def test_totals_count_phases_errors_and_tokens_apart(tmp_path: Path) -> None:
    rows = [
        record("warmup", tokens=(1000, 1)),
        record("warmup", error=TIMEOUT),
        record("warmup", tokens=None),
        record(tokens=(100, 10)),
        record(tokens=(200, 0)),
        record(tokens=None),
        record(error=TIMEOUT),
        record(error={"code": 500}),
        record(tokens=(50, 5), cancelled=True),
    ]
    found = totals(records(write_artifacts(tmp_path, rows)))
    assert (found.completed, found.failed) == (3, 3)
    assert (found.warmup, found.warmup_failed) == (3, 1)
    assert (found.no_output, found.warmup_no_output) == (2, 1)
    assert found.errors == {"RequestTimeout": 2, "500": 1, "cancelled": 1}
    assert (found.input_tokens, found.output_tokens) == (1300, 11)


def test_an_empty_export_has_totals_of_nothing(tmp_path: Path) -> None:
    (tmp_path / "profile_export.jsonl").touch()
    assert totals(records(tmp_path))[:6] == (0, 0, 0, 0, 0, 0)
    assert activity(records(tmp_path)) is None


def test_activity_is_that_of_the_window_in_whatever_order(tmp_path: Path) -> None:
    """Under way from 2 s to 4 s (twice from 3 s), and from 9 s to 10 s: 4 s of work in 8 s."""
    rows = [
        record("warmup", 0, 1),
        record(start_s=9, end_s=10, error=TIMEOUT),
        record(start_s=3, end_s=4),
        record(start_s=2, end_s=4),
    ]
    for number, order in enumerate((rows, rows[::-1])):
        assert activity(records(write_artifacts(tmp_path / str(number), order))) == (0.5, 5.0, 1)


def test_a_gap_is_counted_from_the_latest_end_and_not_from_the_latest_start(tmp_path: Path) -> None:
    rows = [record(start_s=0, end_s=10), record(start_s=1, end_s=2), record(start_s=8, end_s=12)]
    found = activity(records(write_artifacts(tmp_path, rows)))
    assert found is not None
    assert found.longest_gap_s == 0


def test_a_line_that_was_cut_short_is_an_error_and_no_shorter_result(tmp_path: Path) -> None:
    write_artifacts(tmp_path, good_rows())
    path = tmp_path / "profile_export.jsonl"
    path.write_text(path.read_text(encoding="utf-8")[:-40], encoding="utf-8")
    with pytest.raises(ValueError, match=r"profile_export\.jsonl:4 is no record"):
        totals(records(tmp_path))


@pytest.mark.parametrize("line", ["[]", "{}", '{"metadata": null}', '{"metadata": {}}', "7"])
def test_a_line_that_is_no_record_is_an_error(tmp_path: Path, line: str) -> None:
    (tmp_path / "profile_export.jsonl").write_text(line + "\n", encoding="utf-8")
    with pytest.raises(ValueError, match="no record"):
        totals(records(tmp_path))


def test_a_missing_export_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        totals(records(tmp_path))
    with pytest.raises(UserError, match=r"profile_export_aiperf\.json: cannot be read"):
        aggregate(tmp_path)


def test_counters_are_summed_over_their_labels(tmp_path: Path) -> None:
    path = tmp_path / "metrics.txt"
    path.write_text(metrics_text({"vllm:prompt_tokens_total": 300.0}, INFOS), encoding="utf-8")
    assert read_counters(path)["vllm:prompt_tokens_total"] == 300.0
    assert labels_of(path, "vllm:cache_config_info") == INFOS["vllm:cache_config_info"]
    assert labels_of(path, "vllm:no_such_info") is None


def test_growth_tells_no_counter_from_no_growth() -> None:
    assert grown({"a": 3.0}, {"a": 5.0}, "a") == 2.0
    assert grown({}, {"a": 5.0}, "a") == 5.0
    assert grown({"a": 5.0}, {"a": 5.0}, "a") == 0.0
    assert grown({"a": 5.0}, {}, "a") is None


def measured(artifacts: Path, world_size: int, window_s: float = 20.0) -> dict[str, Any]:
    return request_metrics(records(artifacts), world_size, window_s)


def test_throughput_is_tokens_over_earliest_start_to_latest_end(tmp_path: Path) -> None:
    """Three requests of 100 + 10 tokens in the window from 2 s to 7 s; the warm-up is outside."""
    found = measured(write_artifacts(tmp_path, good_rows()), 2)
    assert (found["requests"], found["measured_s"]) == (3, 5.0)
    assert found["input_tput_tok_s"] == 300 / 5
    assert found["output_tput_tok_s"] == 30 / 5
    assert found["total_tput_tok_s"] == 330 / 5
    for name in ("input", "output", "total"):
        whole = found[f"{name}_tput_tok_s"]
        assert isinstance(whole, float)
        assert found[f"{name}_tput_tok_s_gpu"] == whole / 2


def test_the_order_of_records_does_not_matter(tmp_path: Path) -> None:
    forwards = measured(write_artifacts(tmp_path / "a", good_rows()), 1)
    assert measured(write_artifacts(tmp_path / "b", good_rows()[::-1]), 1) == forwards


def test_throughput_of_the_fixed_window_is_of_what_ended_in_it(tmp_path: Path) -> None:
    """From 2 s on, three seconds: two requests end in it, the third two seconds later."""
    found = measured(write_artifacts(tmp_path, good_rows()), 2, window_s=3)
    assert found["window_requests"] == 2
    assert found["window_total_tput_tok_s"] == pytest.approx(220 / 3, abs=1e-5)
    assert found["window_input_tput_tok_s_gpu"] == pytest.approx(200 / 6, abs=1e-5)
    assert found["window_output_tput_tok_s"] == pytest.approx(20 / 3, abs=1e-5)
    assert found["total_tput_tok_s"] == 66.0


def test_the_fixed_window_begins_with_its_first_request_even_if_that_failed(tmp_path: Path) -> None:
    rows = [record(start_s=1, end_s=1.1, error=TIMEOUT), *good_rows()]
    found = measured(write_artifacts(tmp_path, rows), 1, window_s=3)
    assert (found["window_requests"], found["requests"]) == (1, 3)


def test_an_idle_window_counts_in_full(tmp_path: Path) -> None:
    """One request of a second in a window of twenty: the client's own definition does not see it."""
    found = measured(write_artifacts(tmp_path, [record()]), 1, window_s=20)
    assert (found["total_tput_tok_s"], found["window_total_tput_tok_s"]) == (110.0, 5.5)


def test_errors_and_warm_up_are_in_no_statistic(tmp_path: Path) -> None:
    others = [
        record("warmup", 0, 100, tokens=(9999, 9999), ttft_ms=9e9),
        record(start_s=0, end_s=100, error=TIMEOUT),
        record(start_s=0, end_s=100, tokens=(9999, 9999), cancelled=True),
    ]
    clean = measured(write_artifacts(tmp_path / "a", good_rows()), 1)
    assert measured(write_artifacts(tmp_path / "b", good_rows() + others), 1) == clean


def test_statistics_are_numpys(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    ttft, itl, end = draw.gamma(2, 100, 50), draw.gamma(3, 5, 50), draw.gamma(2, 2, 50)
    rows = [
        record(end_s=float(e), ttft_ms=float(t), itl_ms=float(i), tokens=(n, n + 1))
        for n, (t, i, e) in enumerate(zip(ttft, itl, end, strict=True))
    ]
    found = measured(write_artifacts(tmp_path, rows), 1)
    e2e = np.round(end * S) / S * 1000
    for name, values in (("ttft", ttft), ("itl", itl), ("e2e", e2e)):
        assert found[f"{name}_mean_ms"] == pytest.approx(np.mean(values), abs=1e-4)
        assert found[f"{name}_std_ms"] == pytest.approx(np.std(values), abs=1e-4)
        for percent in (50, 75, 90, 95, 99):
            expected = pytest.approx(np.percentile(values, percent), abs=1e-4)
            assert found[f"{name}_p{percent}_ms"] == expected
    p95 = float(np.percentile(range(50), 95))
    for statistic, tokens in (("mean", 24.5), ("p50", 24.5), ("p95", p95)):
        assert found[f"isl_{statistic}_tok"] == pytest.approx(tokens)
        assert found[f"osl_{statistic}_tok"] == pytest.approx(tokens + 1)


def test_interactivity_is_a_second_over_itl_of_the_same_statistic(tmp_path: Path) -> None:
    found = measured(write_artifacts(tmp_path, good_rows()), 1)
    assert found["itl_p50_ms"] == 20.0
    assert found["interactivity_p50_tok_s_user"] == 50.0
    for statistic in ("mean", *PERCENTILES):
        itl = found[f"itl_{statistic}_ms"]
        assert isinstance(itl, float)
        assert found[f"interactivity_{statistic}_tok_s_user"] == pytest.approx(1000 / itl, abs=1e-5)


def test_interactivity_deviates_as_it_does_over_the_requests(tmp_path: Path) -> None:
    found = measured(write_artifacts(tmp_path, [record(itl_ms=10.0), record(itl_ms=20.0)]), 1)
    assert found["interactivity_std_tok_s_user"] == 25.0


def test_time_per_output_token_leaves_the_first_token_out(tmp_path: Path) -> None:
    rows = [record(end_s=1.2, ttft_ms=200.0, tokens=(100, 11)), record(tokens=(100, 1))]
    found = measured(write_artifacts(tmp_path, rows), 1)
    assert (found["tpot_mean_ms"], found["tpot_std_ms"]) == (100.0, 0.0)


def test_a_replay_without_a_success_has_no_numbers_instead_of_zeros(tmp_path: Path) -> None:
    found = measured(write_artifacts(tmp_path, [record(error=TIMEOUT)]), 2)
    assert (found.pop("requests"), found.pop("measured_s")) == (0, 0.0)
    assert (found.pop("requests_without_itl"), found.pop("window_requests")) == (0, 0)
    assert set(found.values()) == {None}


def test_answers_of_one_token_have_no_gap_and_count_in_all_else(tmp_path: Path) -> None:
    rows = [record(tokens=(100, 1), itl_ms=None), record(tokens=(100, 11), itl_ms=20.0)]
    found = measured(write_artifacts(tmp_path, rows), 1)
    assert (found["requests"], found["itl_mean_ms"], found["osl_mean_tok"]) == (2, 20.0, 6.0)


def server(folder: Path, before: dict[str, float], after: dict[str, float]) -> dict[str, object]:
    for name, counters in (("before", before), ("after", after)):
        (folder / f"{name}.txt").write_text(metrics_text(counters), encoding="utf-8")
    return dict(server_metrics(folder / "before.txt", folder / "after.txt"))


def test_ratios_and_acceptance_are_of_what_grew_during_the_replay(tmp_path: Path) -> None:
    before = {
        "vllm:prefix_cache_hits_total": 100.0,
        "vllm:prefix_cache_queries_total": 100.0,
        "vllm:num_preemptions_total": 2.0,
        "vllm:spec_decode_num_drafts_total": 10.0,
        "vllm:spec_decode_num_accepted_tokens_total": 20.0,
    }
    after = {
        "vllm:prefix_cache_hits_total": 250.0,
        "vllm:prefix_cache_queries_total": 300.0,
        "vllm:num_preemptions_total": 6.0,
        "vllm:spec_decode_num_drafts_total": 110.0,
        "vllm:spec_decode_num_accepted_tokens_total": 171.0,
    }
    assert server(tmp_path, before, after) == {
        "prefix_cache_hit_ratio": 0.75,
        "external_prefix_cache_hit_ratio": None,
        "queue_mean_ms": None,
        "preemptions": 4,
        "offload_load_blocks": None,
        "offload_load_bytes": None,
        "offload_load_s": None,
        "offload_store_bytes": None,
        "offload_store_s": None,
        "acceptance_length_tok": 2.51,
    }


def test_offload_is_told_by_what_grew(tmp_path: Path) -> None:
    before = {"vllm:kv_offload_load_bytes_total": 1024.0, "vllm:kv_offload_load_time_total": 0.5}
    after = {
        "vllm:kv_offload_load_bytes_total": 4096.0,
        "vllm:kv_offload_load_time_total": 0.75,
        "vllm:simple_kv_offload_load_blocks_total": 12.0,
    }
    found = server(tmp_path, before, after)
    assert (found["offload_load_bytes"], found["offload_load_s"]) == (3072, 0.25)
    assert (found["offload_load_blocks"], found["offload_store_bytes"]) == (12, None)


def test_time_in_the_queue_is_the_mean_of_the_replays_requests(tmp_path: Path) -> None:
    """Two more requests that waited half a second between them."""
    name = "vllm:request_queue_time_seconds"
    for time, count, total in (("before", 4, 10.0), ("after", 6, 10.5)):
        lines = [
            f"# HELP {name} Help.",
            f"# TYPE {name} histogram",
            f'{name}_bucket{{le="+Inf"}} {count}',
        ]
        text = "\n".join([*lines, f"{name}_count {count}", f"{name}_sum {total}", ""])
        (tmp_path / f"{time}.txt").write_text(text, encoding="utf-8")
    assert server_metrics(tmp_path / "before.txt", tmp_path / "after.txt")["queue_mean_ms"] == 250.0


def test_requests_are_accounted_for_and_what_the_log_does_not_tell_is_nothing() -> None:
    told = accounting({"profiling": Phase(10, 8, 2), "warmup": Phase(3, 3, 0)})
    assert told == {
        "requests_sent": 10,
        "requests_completed": 8,
        "requests_given_up": 2,
        "requests_warmup_given_up": 0,
    }
    assert set(accounting({}).values()) == {None}


@pytest.mark.parametrize(
    ("aggregate", "share"),
    [
        ({"theoretical_prefix_cache_hit": {"avg": 82.7, "count": 1532, "sum": 1267}}, 0.82702),
        ({"theoretical_prefix_cache_hit": {"avg": 0.0, "count": 0, "sum": 0}}, None),
        ({}, None),
    ],
)
def test_theoretical_hits_are_of_all_blocks(aggregate: dict[str, Any], share: float | None) -> None:
    assert theoretical_hits(aggregate) == {"theoretical_prefix_cache_hit_ratio": share}


def test_a_server_without_these_counters_has_no_such_numbers(tmp_path: Path) -> None:
    assert set(server(tmp_path, {}, {"vllm:other_total": 1.0}).values()) == {None}


def test_records_are_read_one_by_one(tmp_path: Path) -> None:
    """A six-hour export is large: it is never held as a whole."""
    (tmp_path / "profile_export.jsonl").write_text(json.dumps(record()) + "\nbad\n", encoding="utf-8")
    reader = records(tmp_path)
    assert next(reader).profiled
    with pytest.raises(ValueError, match=r"jsonl:2 is no record"):
        next(reader)


def test_a_row_holds_a_points_numbers_gates_and_identity(tmp_path: Path) -> None:
    replay, attempt = write_point(tmp_path / "conc2")
    made = row(replay)
    assert (made["nodes"], made["gpus"], made["boot_s"]) == ("n0 n1", 2, 31.5)
    assert (made["requests"], made["requests_warmup"], made["requests_failed"]) == (3, 1, 0)
    assert (made["gates_passed"], made["gates_total"]) == (1, 3)
    assert (made["plan_id"], made["driver_id"]) == ("ab" * 6, 1)
    assert (made["total_tput_tok_s_gpu"], made["window_total_tput_tok_s_gpu"]) == (33.0, 8.25)
    assert (made["requests_sent"], made["requests_completed"], made["requests_given_up"]) == (3, 3, 0)
    assert Path(made["attempt"]) == attempt
    assert list(summary([replay, replay])["concurrency"]) == [2, 2]


def test_gauges_are_told_as_mean_and_peak_and_absent_ones_as_nothing(tmp_path: Path) -> None:
    assert set(gauge_metrics(tmp_path).values()) == {None}
    usage = {"series": [{"stats": {"avg": 0.25, "max": 0.904, "min": 0.0}}]}
    write_json(
        tmp_path / "server_metrics_export.json",
        {"metrics": {"vllm:kv_cache_usage_perc": usage, "vllm:num_requests_waiting": {"series": []}}},
    )
    found = gauge_metrics(tmp_path)
    assert (found["kv_cache_usage_mean_ratio"], found["kv_cache_usage_max_ratio"]) == (0.25, 0.904)
    assert found["requests_running_mean"] is None
    assert found["requests_waiting_max"] is None
