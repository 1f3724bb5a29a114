"""The request half of InferenceX's aggregate, from the client's records.

Times in seconds. Zero times are no values, and a tpot is its itl, as InferenceX has it.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from serve_repro.client.artifacts import Record, aggregate, records

NS = 1_000_000_000
PERCENTILES = {"p50": 50, "p75": 75, "p90": 90, "p95": 95}
CENTRE = ("mean", *PERCENTILES)

Statistics = dict[str, float]


class Requests(NamedTuple):
    """What the records tell."""

    accounting: dict[str, Any]
    metrics: dict[str, Any]
    successful: int
    input_tokens: int
    output_tokens: int


COLUMNS: dict[str, Callable[[Record], float | None]] = {
    "ttft": lambda record: _seconds(record.ttft_ms),
    "e2el": lambda record: _seconds(record.e2e_ms),
    "itl": lambda record: _seconds(record.itl_ms),
    "full_response_itl": lambda record: _seconds(record.full_itl_ms),
    "e2e_per_token": lambda record: _per_token(record),
    "input": lambda record: record.input_tokens,
    "output_actual": lambda record: record.output_tokens,
    "output_expected": lambda record: _expected(record),
}


def read_requests(artifacts: Path, gpus: int) -> Requests:
    """One pass over the records, eight bytes a number.

    Args:
        artifacts: the client's artifact folder.
        gpus: accelerators of the server: what a per-GPU rate is divided by.
    """
    columns = {name: array("d") for name in COLUMNS}
    ends, first = array("q"), None
    counts: Counter[str] = Counter()
    errors: Counter[str] = Counter()
    for record in records(artifacts):
        counts["total"] += 1
        counts["warmup"] += int(not record.profiled)
        if record.error is not None:
            errors[record.error] += 1
        if record.error is not None or not record.profiled:
            continue
        first = record.start_ns if first is None else min(first, record.start_ns)
        ends.append(record.end_ns)
        for name, value_of in COLUMNS.items():
            value = value_of(record)
            if value is not None:
                columns[name].append(value)
    successful = len(ends)
    tokens = {name: int(sum(columns[name])) for name in ("input", "output_actual")}
    return Requests(
        accounting={
            "records_total": counts["total"],
            "records_profiled": successful,
            "records_dropped_total": counts["total"] - successful,
            "records_warmup_dropped": counts["warmup"],
            "records_error_dropped": errors.total(),
            "error_categories": dict(sorted(errors.items())),
        },
        metrics={
            "qps": _completions(ends),
            "latency": _latency(columns),
            "tokens": {
                name: _statistics(columns[name])
                for name in ("input", "output_actual", "output_expected")
            },
            "throughput": _throughput(
                tokens["input"], tokens["output_actual"], _span_s(first, ends), gpus
            ),
            "cache": {"theoretical_cache_hit_rate": _theoretical_hits(artifacts)},
        },
        successful=successful,
        input_tokens=tokens["input"],
        output_tokens=tokens["output_actual"],
    )


def _seconds(milliseconds: float | None) -> float | None:
    return milliseconds / 1000 if milliseconds else None


def _per_token(record: Record) -> float | None:
    seconds = _seconds(record.e2e_ms)
    return seconds / record.output_tokens if seconds and record.output_tokens else None


def _expected(record: Record) -> float | None:
    """Tokens that were asked for, by how far off the answer is.

    InferenceX looks a subagent's turns up in its parent's list; the client's own word is each
    request's. None of an answer without tokens.
    """
    if not record.output_tokens or record.length_off_pct is None:
        return None
    return round(record.output_tokens / (1 + record.length_off_pct / 100))


def _statistics(values: array[float]) -> Statistics:
    if not values:
        return {}
    numbers = np.asarray(values)
    found = {name: float(np.percentile(numbers, at)) for name, at in PERCENTILES.items()}
    return {"mean": float(numbers.mean()), **found, "std": float(numbers.std())}


def _inverse(values: array[float], statistics: Statistics) -> Statistics:
    """One over each statistic, so that a high percentile is the slow tail; std is over the inverses."""
    if not values:
        return {}
    told = {name: 1 / statistics[name] for name in CENTRE}
    return told | {"std": float((1 / np.asarray(values)).std())}


def _latency(columns: dict[str, array[float]]) -> dict[str, Statistics]:
    told = {name: _statistics(columns[name]) for name in ("ttft", "e2el", "itl")}
    full, per_token = columns["full_response_itl"], columns["e2e_per_token"]
    return {
        **told,
        "tpot": told["itl"],
        "intvty": _inverse(columns["itl"], told["itl"]),
        "e2e_norm_intvty": _inverse(per_token, _statistics(per_token)),
        "full_response_itl": _statistics(full),
        "full_response_intvty": _inverse(full, _statistics(full)),
    }


def _completions(ends: array[int]) -> dict[str, Any]:
    """Requests that ended in each whole second after the first end; the rest of a second is left out."""
    if len(ends) < 2:
        return {}
    since = np.asarray(ends) - min(ends)
    if not since.any():
        return {}
    windows = int(since.max() // NS)
    if windows == 0:
        return {"window_seconds": 1.0, "samples": 0, "mean": len(ends) / (float(since.max()) / NS)}
    counts = np.bincount(since // NS, minlength=windows)[:windows]
    return {"window_seconds": 1.0, "samples": windows, **_statistics(array("d", counts.tolist()))}


def _span_s(first: int | None, ends: array[int]) -> float:
    return 0.0 if first is None else (max(ends) - first) / NS


def _throughput(tokens_in: int, tokens_out: int, seconds: float, gpus: int) -> dict[str, Any]:
    if seconds <= 0:
        return {}
    rates = {
        "input": tokens_in / seconds,
        "output": tokens_out / seconds,
        "total": (tokens_in + tokens_out) / seconds,
    }
    return {
        **{name: {"tokens_per_second": rate} for name, rate in rates.items()},
        "duration_seconds": seconds,
        "per_gpu": {f"{name}_tput_tps": rate / gpus for name, rate in rates.items()},
    }


def _theoretical_hits(artifacts: Path) -> float | None:
    """Share of the prompts' blocks that an endless cache would have had."""
    told = aggregate(artifacts).get("theoretical_prefix_cache_hit") or {}
    return told["sum"] / told["count"] if told.get("count") else None
