"""The numbers of one point, from the client's records and the server's counters.

Statistics are over profiled requests that succeeded; warm-up and errors are counted apart.
Throughput is InferenceX's: tokens of those requests / (latest end - earliest start), so the drain
of the last requests counts. Interactivity is 1 / ITL: tokens a second that one user sees.
"""

from __future__ import annotations

from array import array
from pathlib import Path

import numpy as np

from serve_repro.client.artifacts import Record, gauges, records
from serve_repro.client.server_metrics import grown, read_counters

PERCENTILES = {"p50": 50, "p75": 75, "p90": 90, "p95": 95, "p99": 99}
STATISTICS = ("mean", *PERCENTILES, "std")
"""What is told of each latency; std is the deviation of the sample of all requests (divisor n)."""

NS = 1e9
Number = float | int | None


def request_metrics(artifacts: Path, world_size: int) -> dict[str, Number]:
    """Latencies (ms), token lengths and throughput (tokens/s, whole and per GPU) of one replay.

    Args:
        artifacts: the client's artifact folder.
        world_size: accelerators of the server.
    """
    # Eight bytes a number: the record files of a long sweep hold millions.
    columns = {name: array("d") for name in ("ttft_ms", "itl_ms", "tpot_ms", "e2e_ms", "isl", "osl")}
    first, last = None, None
    for record in records(artifacts):
        if not record.profiled or record.error is not None:
            continue
        first = record.start_ns if first is None else min(first, record.start_ns)
        last = record.end_ns if last is None else max(last, record.end_ns)
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
    row |= _throughput(sum(columns["isl"]), sum(columns["osl"]), seconds, world_size)
    for name in ("ttft", "itl", "tpot", "e2e"):
        for statistic in STATISTICS:
            row[f"{name}_{statistic}_ms"] = _statistic(columns[f"{name}_ms"], statistic)
    for statistic in ("mean", *PERCENTILES):
        itl = row[f"itl_{statistic}_ms"]
        row[f"interactivity_{statistic}_tok_s_user"] = _rounded(1000 / itl) if itl else None
    for name in ("isl", "osl"):
        for statistic in ("mean", "p50", "p95"):
            row[f"{name}_{statistic}_tok"] = _statistic(columns[name], statistic)
    return row


def server_metrics(before: Path, after: Path) -> dict[str, Number]:
    """Cache hit ratios, offload and speculation of one replay, from the growth of counters."""
    then, now = read_counters(before), read_counters(after)

    def ratio(part: str, whole: str) -> Number:
        top, bottom = grown(then, now, part), grown(then, now, whole)
        return _rounded(top / bottom) if top is not None and bottom else None

    drafts = grown(then, now, "vllm:spec_decode_num_drafts_total")
    accepted = grown(then, now, "vllm:spec_decode_num_accepted_tokens_total")
    preemptions = grown(then, now, "vllm:num_preemptions_total")
    return {
        "prefix_cache_hit_ratio": ratio(
            "vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total"
        ),
        "external_prefix_cache_hit_ratio": ratio(
            "vllm:external_prefix_cache_hits_total", "vllm:external_prefix_cache_queries_total"
        ),
        "preemptions": None if preemptions is None else int(preemptions),
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


def _throughput(
    input_tokens: float, output_tokens: float, seconds: float, gpus: int
) -> dict[str, Number]:
    row: dict[str, Number] = {}
    for name, tokens in (
        ("total", input_tokens + output_tokens),
        ("input", input_tokens),
        ("output", output_tokens),
    ):
        rate = tokens / seconds if seconds else None
        row[f"{name}_tput_tok_s"] = None if rate is None else _rounded(rate)
        row[f"{name}_tput_tok_s_gpu"] = None if rate is None else _rounded(rate / gpus)
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
