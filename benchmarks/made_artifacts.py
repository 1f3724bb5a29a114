"""Artifacts of a long replay, in the layout of the real client's, written without holding them.

The shape is that of a real attempt of the tiny recipe: 36 metrics a record, of which the gaps between
chunks are a list; 21 gauges, 40 counters and 19 histograms of 22 buckets a slice of one second.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import IO

NS = 1_000_000_000
START = 1_796_092_480 * NS
LANES = 20

SCALARS = (
    *("time_to_first_token", "time_to_second_token", "time_to_first_output_token", "request_latency"),
    *("inter_token_latency", "full_response_inter_token_latency", "decode_duration"),
    *("full_decode_duration", "output_sequence_length", "input_sequence_length", "output_token_count"),
    *("usage_prompt_tokens", "usage_completion_tokens", "usage_total_tokens", "osl_mismatch_diff_pct"),
    *("output_token_throughput_per_user", "full_response_output_token_throughput_per_user"),
    *("e2e_output_token_throughput", "prefill_throughput_per_user"),
    *("http_req_data_received", "http_req_data_sent", "http_req_chunks_received"),
    *("http_req_chunks_sent", "http_req_connection_reused", "http_req_connection_overhead"),
    *("http_req_dns_lookup", "http_req_blocked", "http_req_waiting", "http_req_sending"),
    *("http_req_connecting", "http_req_receiving", "http_req_duration", "http_req_total"),
)
"""Metrics of a record that are one number."""

OWN_GAUGES = ("vllm:kv_cache_usage_perc", "vllm:num_requests_running", "vllm:num_requests_waiting")
OWN_COUNTERS = (
    *("vllm:external_prefix_cache_hits", "vllm:external_prefix_cache_queries"),
    *("vllm:generation_tokens", "vllm:prefix_cache_hits", "vllm:prefix_cache_queries"),
    "vllm:prompt_tokens",
)


def _others(kind: str, count: int) -> list[str]:
    """Metrics that nobody reads, half of them before the others in the file."""
    return [f"{'az'[number % 2]}_{kind}_{number}" for number in range(count)]


NAMES = {
    "gauge": [*OWN_GAUGES, *_others("gauge", 21 - len(OWN_GAUGES))],
    "counter": [*OWN_COUNTERS, *_others("counter", 40 - len(OWN_COUNTERS))],
    "histogram": _others("histogram", 19),
}
BUCKETS = ", ".join(f'"{0.3 * 1.6**n:.1f}": {{n}}' for n in range(22)).replace(", ", ",\n            ")
"""Of one slice; {n} is the count."""


def write_records(folder: Path, records: int, window_s: int, chunks: int) -> None:
    """profile_export.jsonl, a record a line, and the aggregate.

    Args:
        folder: the client's artifacts.
        records: requests of the window; one in ten more is of the warm-up.
        window_s: over which they are spread.
        chunks: pieces in which each answer came.
    """
    draw = Random(0)
    with (folder / "profile_export.jsonl").open("w", encoding="utf-8") as stream:
        for number in range(-records // 10, records):
            start = START + int(number * window_s / records * NS)
            stream.write(json.dumps(_record(draw, number, start, chunks), separators=(",", ":")) + "\n")
    aggregate = {
        "benchmark_duration": {"unit": "sec", "avg": float(window_s)},
        "request_count": {"unit": "requests", "avg": float(records)},
        "theoretical_prefix_cache_hit": {"unit": "%", "avg": 90.0, "count": 1000, "sum": 900},
        "was_cancelled": False,
    }
    (folder / "profile_export_aiperf.json").write_text(json.dumps(aggregate), encoding="utf-8")


def _record(draw: Random, number: int, start: int, chunks: int) -> dict[str, object]:
    ids = [f"{draw.getrandbits(128):032x}" for _ in range(3)]
    values: dict[str, object] = {name: draw.uniform(1, 1000) for name in SCALARS}
    values |= {"usage_prompt_tokens": 135_000, "usage_completion_tokens": 2 * chunks}
    values |= {"request_latency": 9000 * draw.random(), "osl_mismatch_diff_pct": 0.0}
    values["inter_chunk_latency"] = [draw.uniform(1, 60) for _ in range(chunks - 1)]
    return {
        "metadata": {
            "session_num": number,
            "x_request_id": ids[0],
            "x_correlation_id": ids[1],
            "conversation_id": ids[2],
            "turn_index": 0,
            "credit_issued_ns": start - 1_000_000,
            "request_start_ns": start,
            "request_ack_ns": start + 1_000_000,
            "request_end_ns": start + int(9 * NS * draw.random()),
            "worker_id": "worker_43e70ae0",
            "record_processor_id": "record_processor_1530ff69",
            "benchmark_phase": "profiling" if number >= 0 else "warmup",
            "was_cancelled": False,
            "agent_depth": int(number % 3 == 0),
            "root_correlation_id": f"tree-{number % LANES}-{number // 400}",
        },
        "metrics": {name: {"value": value, "unit": "ms"} for name, value in values.items()},
    }


def write_server_series(folder: Path, window_s: int) -> None:
    """server_metrics_export.json: a slice a second of every metric, a sixth as many of the warm-up."""
    window = {"start_ns": START, "end_ns": START + window_s * NS}
    with (folder / "server_metrics_export.json").open("w", encoding="utf-8") as stream:
        summary = json.dumps({"phase_time_ranges": {"profiling": window}}, indent=2)
        stream.write(f'{{\n"schema_version": "1.1",\n"summary": {summary},\n')
        stream.write('"metrics_phase": "profiling"')
        for part, slices in (("metrics", window_s), ("warmup_metrics", window_s // 6)):
            stream.write(f',\n"{part}": {{\n')
            _write_metrics(stream, slices)
            stream.write("\n}")
        stream.write("\n}\n")


def _write_metrics(stream: IO[str], slices: int) -> None:
    draw = Random(1)
    kinds = {name: kind for kind, names in NAMES.items() for name in names}
    for position, name in enumerate(sorted(kinds)):
        head = {"type": kinds[name], "description": "What it is, in a sentence of usual length."}
        text = json.dumps(head, indent=2).removesuffix("\n}")
        comma = ",\n" if position else ""
        stream.write(f'{comma}"{name}": {text},\n  "series": [\n    {{\n')
        stream.write('      "labels": {"engine": "0"},\n      "stats": {"avg": 0.5, "max": 0.9},\n')
        stream.write('      "timeslices": [\n')
        for number, piece in enumerate(_slices(draw, kinds[name], slices)):
            stream.write(",\n" + piece if number else piece)
        stream.write("\n      ]\n    }\n  ]\n}")


def _slices(draw: Random, kind: str, count: int) -> Iterator[str]:
    for number in range(count):
        value = draw.random()
        fields = {
            "gauge": f'"avg": {value},\n          "min": {value},\n          "max": {value}',
            "counter": f'"total": {value},\n          "rate": {value}',
        }.get(kind)
        if fields is None:
            buckets = BUCKETS.replace("{n}", str(number % 9))
            fields = f'"count": 2,\n          "sum": {value},\n          "avg": {value},\n'
            fields += f'          "buckets": {{\n            {buckets}\n          }}'
        begin = START + number * NS
        yield (
            f'        {{\n          "start_ns": {begin},\n          "end_ns": {begin + NS},\n'
            f"          {fields}\n        }}"
        )
