"""InferenceX's aggregate of one valid point, for its dashboards.

Names and formulas are those of its utils/agentic/aggregation; the fields that its own multi-node path
leaves empty (hw, image, kv_offload_backend, kv_cache_pool_tokens) are filled.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from serve_repro.client.artifacts import aggregate as client_aggregate
from serve_repro.documents import read_json
from serve_repro.inferencex.requests import read_requests
from serve_repro.inferencex.server import pool_tokens, server_metrics

DIGITS = 5
"""Decimals of every float."""


def aggregate(replay: Path, labels: dict[str, Any]) -> dict[str, Any]:
    """The aggregate of a point.

    `image` carries the digest that served. `recipe_fingerprint` is our plan's hash: it tells points
    of one plan from those of another, and equals no fingerprint of InferenceX's own.

    Args:
        replay: the point's replay.json; the artifacts stand in the attempt that it names.
        labels: what `serve_repro.inferencex.labels` says of it.
    """
    point = read_json(replay)
    attempt = replay.parent / point["attempt"]
    artifacts = attempt / "client" / "artifacts"
    requests = read_requests(artifacts, point["world_size"])
    pool = pool_tokens(attempt)
    server = server_metrics(artifacts, pool)
    tokens = server["tokens"]
    tokens["requests_completed"] = requests.successful
    for name, sent in (
        ("prompt_total", requests.input_tokens),
        ("generation_total", requests.output_tokens),
    ):
        tokens[name] = sent if tokens[name] is None else round(tokens[name])
    found = labels | {
        "image": f"{labels['image']}@{point['identity']['image']}",
        "recipe_fingerprint": point["identity"]["plan"].removeprefix("sha256:"),
        "num_requests_total": requests.accounting["records_total"],
        "num_requests_successful": requests.successful,
        "request_accounting": requests.accounting,
        "request_metrics": requests.metrics,
        "server_metrics": server,
        "kv_cache_pool_tokens": pool,
    }
    dataset = (client_aggregate(artifacts).get("metadata") or {}).get("dataset")
    if dataset:
        found["dataset"] = dataset
    warnings = [] if server["present"] else ["server_metrics_export.json missing or empty"]
    warnings += [] if pool is not None else ["size of the KV cache in tokens is not known"]
    if warnings:
        found["warnings"] = warnings
    rounded: dict[str, Any] = _rounded(found)
    return rounded


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, DIGITS)
    if isinstance(value, dict):
        return {key: _rounded(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_rounded(entry) for entry in value]
    return value
