"""The server half of InferenceX's aggregate, from what the client sampled of vLLM's /metrics."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from serve_repro.client.artifacts import SERVER_SERIES
from serve_repro.client.server_metrics import labels_of
from serve_repro.documents import read_json

Series = dict[str, Any]

_POOL = re.compile(r"GPU KV cache size: ([\d,]+) tokens")
_SOURCED = (
    "vllm:prompt_tokens",
    "vllm:generation_tokens",
    "vllm:prefix_cache_hits",
    "vllm:prefix_cache_queries",
    "vllm:kv_cache_usage_perc",
    "vllm:prompt_tokens_by_source",
)
"""Metrics whose series tell which engines there were."""


def server_metrics(artifacts: Path, pool_tokens: int | None) -> dict[str, Any]:
    """Cache, KV, offload and tokens over the measured window, by InferenceX's names.

    Shares from 0 to 1, bytes, seconds, bytes/s; null where the server has no such metric.
    """
    path = artifacts / SERVER_SERIES
    metrics = read_json(path)["metrics"] if path.is_file() else {}
    series: dict[str, list[Series]] = {name: found["series"] for name, found in metrics.items()}

    def total(name: str) -> float | None:
        return _total(series.get(name, []))

    hits, queries = total("vllm:prefix_cache_hits"), total("vllm:prefix_cache_queries")
    far_hits = total("vllm:external_prefix_cache_hits")
    far_queries = total("vllm:external_prefix_cache_queries")
    by_source = _by_label(series.get("vllm:prompt_tokens_by_source", []), "source")
    near, far = by_source.get("local_cache_hit"), by_source.get("external_kv_transfer")
    prompts = sum(by_source.values())
    near_rate = _ratio(near, prompts) if by_source else _ratio(hits, queries)
    far_rate = _ratio(far, prompts) if by_source else _ratio(far_hits, far_queries)
    either = (near or 0) + (far or 0)
    return {
        "present": bool(metrics),
        "adapter": "vllm" if metrics else "none",
        "metric_count": len(metrics),
        "cache": {
            "gpu_cache_hit_rate": near_rate,
            "cpu_cache_hit_rate": far_rate,
            "external_cache_hit_rate": far_rate,
            "overall_cache_hit_rate": _ratio(either, prompts) if by_source else near_rate,
            "prefix_cache_hits": hits,
            "prefix_cache_queries": queries,
            "external_prefix_cache_hits": far_hits,
            "external_prefix_cache_queries": far_queries,
            "cached_tokens_by_source": {},
            # Other servers' routers tell these; vLLM alone has none.
            "frontend_cache_hit_rate": None,
            "router_kv_hit_rate": None,
            "router_shared_cache_hit_rate": None,
            "frontend_cached_tokens": None,
            "frontend_input_tokens": None,
        },
        "kv_cache": {
            "gpu_usage_pct": _peak(series.get("vllm:kv_cache_usage_perc", [])),
            "gpu_total_tokens": pool_tokens,
            "cpu_usage_pct": _peak(series.get("vllm:cpu_kv_cache_usage_perc", [])),
            "cpu_used_tokens": None,
            "cpu_total_tokens": None,
        },
        "kv_offload": _offload(series),
        "tokens": {
            "prompt_total": total("vllm:prompt_tokens"),
            "generation_total": total("vllm:generation_tokens"),
            "requests_completed": None,
            "prompt_by_source": {
                "gpu_cache_hit": near,
                "cpu_or_external_cache_hit": far,
                "computed": by_source.get("local_compute"),
                "raw": by_source,
            },
        },
        "sources": _sources(series),
    }


def pool_tokens(attempt: Path) -> int | None:
    """Tokens that the KV cache on the accelerators holds: vLLM's info metric, else rank 0's log.

    None if neither tells it.
    """
    info = labels_of(attempt / "metrics_after.txt", "vllm:cache_config_info") or {}
    told = info.get("kv_cache_size_tokens", "")
    if told.isdigit():
        return int(told)
    found = None
    with (attempt / "rank0" / "server.log").open(encoding="utf-8", errors="replace") as stream:
        for line in stream:
            if match := _POOL.search(line):
                found = int(match[1].replace(",", ""))
    return found


def _offload(series: dict[str, list[Series]]) -> dict[str, float | None]:
    told: dict[str, float | None] = {}
    for way in ("gpu_to_cpu", "cpu_to_gpu"):
        moved = _total(series.get(f"vllm:kv_offload_bytes_{way}", []))
        seconds = _total(series.get(f"vllm:kv_offload_time_{way}", []))
        told[f"bytes_{way}"], told[f"time_{way}"] = moved, seconds
        told[f"bandwidth_{way}_bytes_per_second"] = _ratio(moved, seconds)
    return told


def _sources(series: dict[str, list[Series]]) -> list[dict[str, Any]]:
    """Each engine of each endpoint apart."""
    names = sorted({_source(one) for metric in _SOURCED for one in series.get(metric, [])})
    found = []
    for name in names:
        own = {
            metric: [one for one in series.get(metric, []) if _source(one) == name]
            for metric in _SOURCED
        }
        found.append(
            {
                "id": name,
                "role": "combined",
                "prompt_tokens": _total(own["vllm:prompt_tokens"]),
                "generation_tokens": _total(own["vllm:generation_tokens"]),
                "prefix_cache_hit_rate": _ratio(
                    _total(own["vllm:prefix_cache_hits"]), _total(own["vllm:prefix_cache_queries"])
                ),
                "gpu_kv_cache_usage_pct": _peak(own["vllm:kv_cache_usage_perc"]),
            }
        )
    return found


def _source(one: Series) -> str:
    endpoint, engine = one.get("endpoint_url"), one["labels"].get("engine")
    parts = ["combined", endpoint, None if engine is None else f"engine={engine}"]
    return "|".join(part for part in parts if part)


def _total(series: Iterable[Series]) -> float | None:
    """What counters grew by in the window; the client leaves `stats` out of a series without samples."""
    grown = [one["stats"]["total"] for one in series if "total" in (one.get("stats") or {})]
    return sum(grown) if grown else None


def _by_label(series: Iterable[Series], label: str) -> dict[str, float]:
    sums: dict[str, float] = {}
    for one in series:
        grown = _total([one])
        if grown is not None:
            name = one["labels"].get(label, "")
            sums[name] = sums.get(name, 0.0) + grown
    return sums


def _peak(series: Iterable[Series]) -> float | None:
    peaks = [one["stats"]["max"] for one in series if "max" in (one.get("stats") or {})]
    return max(peaks, default=None)


def _ratio(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None
