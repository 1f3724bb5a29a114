"""The numbers of one point, from the client's records and the server's counters.

Statistics are over profiled requests that succeeded; warm-up and errors are counted apart.
Throughput is InferenceX's: tokens of those requests / (latest end - earliest start), so the drain
of the last requests counts. Beside it stands that of the fixed window: tokens of the requests that
ended within the planned window, from the first start, / its length. Interactivity is 1 / ITL: tokens
a second that one user sees.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from serve_repro.client.artifacts import Record, gauges
from serve_repro.client.phases import Phase
from serve_repro.client.server_metrics import grown, read_counters

PERCENTILES = {"p50": 50, "p75": 75, "p90": 90, "p95": 95, "p99": 99}
STATISTICS = ("mean", *PERCENTILES, "std")
"""What is told of each latency; std is the deviation of the sample of all requests (divisor n)."""

NS = 1e9
Number = float | int | None


def request_metrics(found: Iterable[Record], world_size: int, window_s: float) -> dict[str, Number]:
    """Latencies (ms), token lengths and throughput (tokens/s, whole and per GPU) of one replay.

    Args:
        found: the client's records.
        world_size: accelerators of the server.
        window_s: planned length of the window.
    """
    # Eight bytes a number: the record files of a long sweep hold millions.
    columns = {name: array("d") for name in ("ttft_ms", "itl_ms", "tpot_ms", "e2e_ms", "isl", "osl")}
    answered = _Answered()
    begin, first, last = None, None, None
    for record in found:
        if not record.profiled:
            continue
        begin = record.start_ns if begin is None else min(begin, record.start_ns)
        if record.error is not None:
            continue
        first = record.start_ns if first is None else min(first, record.start_ns)
        last = record.end_ns if last is None else max(last, record.end_ns)
        answered.add(record)
        for name, value in (
            ("ttft_ms", record.ttft_ms),
            ("itl_ms", record.itl_ms),
            ("tpot_ms", _tpot_ms(record)),
            ("e2e_ms", record.e2e_ms),
            ("isl", record.input_tokens),
            ("osl", record.output_tokens),
        ):
            if value is not None:
                columns[name].append(value)
    seconds = (last - first) / NS if first is not None and last is not None else 0.0
    row: dict[str, Number] = {"requests": len(columns["e2e_ms"]), "measured_s": _rounded(seconds)}
    row["requests_without_itl"] = len(columns["e2e_ms"]) - len(columns["itl_ms"])
    row |= _throughput("", sum(columns["isl"]), sum(columns["osl"]), seconds, world_size)
    row |= _in_window(answered, begin, window_s, world_size)
    for name in ("ttft", "itl", "tpot", "e2e"):
        for statistic in STATISTICS:
            row[f"{name}_{statistic}_ms"] = _statistic(columns[f"{name}_ms"], statistic)
    for statistic in ("mean", *PERCENTILES):
        itl = row[f"itl_{statistic}_ms"]
        row[f"interactivity_{statistic}_tok_s_user"] = _rounded(1000 / itl) if itl else None
    each = array("d", (1000 / itl for itl in columns["itl_ms"] if itl))
    row["interactivity_std_tok_s_user"] = _statistic(each, "std")
    for name in ("isl", "osl"):
        for statistic in ("mean", "p50", "p95"):
            row[f"{name}_{statistic}_tok"] = _statistic(columns[name], statistic)
    return row


def accounting(phases: Mapping[str, Phase]) -> dict[str, Number]:
    """Requests of the window by what became of them, and those of the warm-up that were given up.

    Only the client's log tells of the ones that it gave up at the end of the drain.
    """
    window, warmup = phases.get("profiling", Phase()), phases.get("warmup", Phase())
    return {
        "requests_sent": window.sent,
        "requests_completed": window.completed,
        "requests_given_up": window.cancelled,
        "requests_warmup_given_up": warmup.cancelled,
    }


def theoretical_hits(aggregate: Mapping[str, Any]) -> dict[str, Number]:
    """Share of the window's prompt blocks that an infinite cache for each session would have had.

    Args:
        aggregate: the client's own; it counts blocks of the trace.
    """
    told = aggregate.get("theoretical_prefix_cache_hit") or {}
    hits, blocks = told.get("sum"), told.get("count")
    share = None if hits is None or not blocks else _rounded(hits / blocks)
    return {"theoretical_prefix_cache_hit_ratio": share}


def server_metrics(before: Path, after: Path) -> dict[str, Number]:
    """Cache hits, queue, offload and speculation of one replay, warm-up included: counters' growth.

    Which counters of offload there are depends on vLLM's connector; none of these tells all of them.
    """
    then, now = read_counters(before), read_counters(after)

    def ratio(part: str, whole: str, unit: float = 1.0) -> Number:
        top, bottom = grown(then, now, part), grown(then, now, whole)
        return _rounded(top / bottom * unit) if top is not None and bottom else None

    def count(name: str) -> Number:
        growth = grown(then, now, name)
        return None if growth is None else int(growth)

    def seconds(name: str) -> Number:
        growth = grown(then, now, name)
        return None if growth is None else _rounded(growth)

    drafts = grown(then, now, "vllm:spec_decode_num_drafts_total")
    accepted = grown(then, now, "vllm:spec_decode_num_accepted_tokens_total")
    return {
        "prefix_cache_hit_ratio": ratio(
            "vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total"
        ),
        "external_prefix_cache_hit_ratio": ratio(
            "vllm:external_prefix_cache_hits_total", "vllm:external_prefix_cache_queries_total"
        ),
        "queue_mean_ms": ratio(
            "vllm:request_queue_time_seconds_sum", "vllm:request_queue_time_seconds_count", 1000
        ),
        "preemptions": count("vllm:num_preemptions_total"),
        "offload_load_blocks": count("vllm:simple_kv_offload_load_blocks_total"),
        "offload_load_bytes": count("vllm:kv_offload_load_bytes_total"),
        "offload_load_s": seconds("vllm:kv_offload_load_time_total"),
        "offload_store_bytes": count("vllm:kv_offload_store_bytes_total"),
        "offload_store_s": seconds("vllm:kv_offload_store_time_total"),
        "acceptance_length_tok": _rounded(1 + (accepted or 0.0) / drafts) if drafts else None,
    }


GAUGES = {
    "vllm:kv_cache_usage_perc": "kv_cache_usage_{}_ratio",
    "vllm:num_requests_running": "requests_running_{}",
    "vllm:num_requests_waiting": "requests_waiting_{}",
}
"""Server gauge -> column; {} is the statistic. vLLM's KV "perc" is a share from 0 to 1."""


def gauge_metrics(artifacts: Path) -> dict[str, Number]:
    """Mean and peak over the window of what the server says of itself."""
    row: dict[str, Number] = {}
    for gauge, statistics in gauges(artifacts, GAUGES).items():
        for ours, theirs in (("mean", "avg"), ("max", "max")):
            value = (statistics or {}).get(theirs)
            row[GAUGES[gauge].format(ours)] = None if value is None else _rounded(value)
    return row


class _Answered:
    """When each success ended and its tokens: where the window lies is known only at the end."""

    def __init__(self) -> None:
        self.ends, self.inputs, self.outputs = array("q"), array("q"), array("q")

    def add(self, record: Record) -> None:
        """Append one; tokens that the client does not know count as none."""
        self.ends.append(record.end_ns)
        self.inputs.append(record.input_tokens or 0)
        self.outputs.append(record.output_tokens or 0)


def _in_window(
    answered: _Answered, begin: int | None, window_s: float, world_size: int
) -> dict[str, Number]:
    within = np.asarray(answered.ends) <= (begin or 0) + round(window_s * NS)
    inputs = int(np.asarray(answered.inputs)[within].sum())
    outputs = int(np.asarray(answered.outputs)[within].sum())
    seconds = window_s if answered.ends else 0.0
    row: dict[str, Number] = {"window_requests": int(within.sum())}
    return row | _throughput("window_", inputs, outputs, seconds, world_size)


def _throughput(
    prefix: str, input_tokens: float, output_tokens: float, seconds: float, gpus: int
) -> dict[str, Number]:
    row: dict[str, Number] = {}
    for name, tokens in (
        ("total", input_tokens + output_tokens),
        ("input", input_tokens),
        ("output", output_tokens),
    ):
        rate = tokens / seconds if seconds else None
        row[f"{prefix}{name}_tput_tok_s"] = None if rate is None else _rounded(rate)
        row[f"{prefix}{name}_tput_tok_s_gpu"] = None if rate is None else _rounded(rate / gpus)
    return row


def _tpot_ms(record: Record) -> float | None:
    """Time per output token after the first: (E2E - TTFT) / (OSL - 1), in ms; None for one token."""
    if record.e2e_ms is None or record.ttft_ms is None or (record.output_tokens or 0) < 2:
        return None
    assert record.output_tokens is not None
    return (record.e2e_ms - record.ttft_ms) / (record.output_tokens - 1)


def _statistic(values: array[float], name: str) -> Number:
    if not values:
        return None
    numbers = np.asarray(values)
    if name in PERCENTILES:
        return _rounded(float(np.percentile(numbers, PERCENTILES[name])))
    return _rounded(float(numbers.mean() if name == "mean" else numbers.std()))


def _rounded(value: float) -> float:
    return round(value, 5)
