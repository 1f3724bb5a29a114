"""InferenceX's aggregate: one made point against a golden file, and the rules behind its numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from serve_repro.inferencex.aggregate import aggregate
from serve_repro.inferencex.labels import labels
from serve_repro.inferencex.requests import read_requests
from serve_repro.inferencex.server import pool_tokens, server_metrics
from serve_repro.recipe.load import load
from serve_repro.recipe.recipe import Recipe

from .attempts import good_rows, metrics_text, record, write_artifacts, write_point
from .plans import BASE, plan_of

GOLDEN = Path(__file__).parent / "golden/inferencex.json"
K3 = "kimik3-fp4-mi355x-vllm-agentic-tp8pp2"
ENGINE = {"engine": "0", "model_name": "moonshotai/Kimi-K3"}
COUNTERS = {
    "vllm:prompt_tokens": 300.0,
    "vllm:generation_tokens": 30.0,
    "vllm:prefix_cache_hits": 150.0,
    "vllm:prefix_cache_queries": 300.0,
    "vllm:external_prefix_cache_hits": 60.0,
    "vllm:external_prefix_cache_queries": 150.0,
    "vllm:kv_offload_bytes_gpu_to_cpu": 4096.0,
    "vllm:kv_offload_time_gpu_to_cpu": 0.5,
}
SOURCES = {"local_cache_hit": 150.0, "external_kv_transfer": 60.0, "local_compute": 90.0}
"""What the server says of where the prompts' tokens came from."""


def one(stats: dict[str, float], **labels_: str) -> dict[str, Any]:
    address = "http://127.0.0.1:8888/metrics"
    return {"endpoint_url": address, "labels": ENGINE | labels_, "stats": stats}


def write_export(artifacts: Path) -> None:
    """The client's export of a server whose prefix cache and offload were used."""
    metrics = {name: {"series": [one({"total": value})]} for name, value in COUNTERS.items()}
    metrics["vllm:prompt_tokens_by_source"] = {
        "series": [one({"total": value}, source=name) for name, value in SOURCES.items()]
    }
    metrics["vllm:kv_cache_usage_perc"] = {"series": [one({"avg": 0.5, "max": 0.904})]}
    path = artifacts / "server_metrics_export.json"
    path.write_text(json.dumps({"metrics": metrics}), encoding="utf-8")


@pytest.fixture
def point(tmp_path: Path) -> Path:
    """A made point, with two failed requests; its replay.json."""
    replay, attempt = write_point(tmp_path)
    artifacts = attempt / "client/artifacts"
    rows = [
        *good_rows(),
        record("warmup", 0, 1, error={"code": 500, "message": "x"}),
        record(start_s=3, end_s=4, error={"type": "ClientPayloadError", "message": "x"}),
    ]
    rows[2]["metrics"]["full_response_inter_token_latency"] = {"value": 25.0, "unit": "ms"}
    rows[3]["metrics"]["osl_mismatch_diff_pct"]["value"] = -50.0
    write_artifacts(artifacts, rows)
    told = json.loads((artifacts / "profile_export_aiperf.json").read_text(encoding="utf-8"))
    told["theoretical_prefix_cache_hit"] = {"unit": "%", "avg": 70.0, "sum": 7, "count": 10}
    told["metadata"] = {"dataset": {"source_type": "public_dataset", "num_dataset_entries": 393}}
    (artifacts / "profile_export_aiperf.json").write_text(json.dumps(told), encoding="utf-8")
    write_export(artifacts)
    info = {"vllm:cache_config_info": {"kv_cache_size_tokens": "2097152"}}
    (attempt / "metrics_after.txt").write_text(metrics_text({}, info), encoding="utf-8")
    return replay


def kimi_labels() -> dict[str, Any]:
    recipe = load(BASE / f"config/recipes/{K3}.yaml", Recipe)
    assert recipe.image.reference is not None
    return labels(recipe, plan_of(K3, "mi355x-amds", 20), recipe.image.reference)


def test_a_made_point_gives_the_golden_aggregate(point: Path) -> None:
    made = json.loads(json.dumps(aggregate(point, kimi_labels())))
    assert made == json.loads(GOLDEN.read_text(encoding="utf-8"))


def test_the_fields_that_the_publication_left_empty_are_filled(point: Path) -> None:
    made = aggregate(point, kimi_labels())
    assert made["hw"] == "mi355x"
    assert made["image"].startswith("vllm/vllm-openai-rocm:nightly-")
    assert made["image"].endswith("@sha256:" + "ab" * 32)
    assert made["kv_cache_pool_tokens"] == 2097152
    assert made["kv_offload_backend"] == {"name": "vllm-simple"}
    assert made["allocated_cpu_dram_gb"] == 1499
    assert (made["num_prefill_gpu"], made["num_decode_gpu"]) == (16, 0)
    assert "warnings" not in made


def test_the_size_of_the_pool_comes_from_the_log_if_no_metric_tells_it(point: Path) -> None:
    attempt = next((point.parent / "attempts").iterdir())
    (attempt / "metrics_after.txt").write_text(metrics_text({}), encoding="utf-8")
    assert pool_tokens(attempt) is None
    with (attempt / "rank0/server.log").open("a", encoding="utf-8") as stream:
        stream.write("INFO x.py:1] GPU KV cache size: 1,234,567 tokens\n")
    assert pool_tokens(attempt) == 1234567


def test_without_server_metrics_it_says_so(point: Path) -> None:
    attempt = next((point.parent / "attempts").iterdir())
    (attempt / "client/artifacts/server_metrics_export.json").unlink()
    made = aggregate(point, kimi_labels())
    assert made["server_metrics"]["present"] is False
    assert made["server_metrics"]["tokens"]["prompt_total"] == 300, "the client's own sum"
    assert made["warnings"] == ["server_metrics_export.json missing or empty"]


def test_completions_are_counted_in_whole_seconds_after_the_first(tmp_path: Path) -> None:
    ends = [1.0, 1.5, 2.0, 4.2]
    write_artifacts(tmp_path, [record(start_s=0, end_s=end) for end in ends])
    qps = read_requests(tmp_path, 1).metrics["qps"]
    assert (qps["samples"], qps["mean"], qps["p50"]) == (3, 1.0, 1.0), "counts 2, 1, 0"


def test_no_successful_request_gives_no_number(tmp_path: Path) -> None:
    write_artifacts(tmp_path, [record(error={"code": 500})])
    found = read_requests(tmp_path, 1)
    assert found.successful == 0
    assert found.metrics["throughput"] == found.metrics["qps"] == found.metrics["latency"]["itl"] == {}
    assert found.accounting["error_categories"] == {"500": 1}


def test_two_engines_are_two_sources_and_one_sum(tmp_path: Path) -> None:
    series = [one({"total": 10.0}), one({"total": 5.0}, engine="1")]
    export = {"metrics": {"vllm:prompt_tokens": {"series": series}}}
    (tmp_path / "server_metrics_export.json").write_text(json.dumps(export), encoding="utf-8")
    found = server_metrics(tmp_path, None)
    assert found["tokens"]["prompt_total"] == 15
    assert [entry["prompt_tokens"] for entry in found["sources"]] == [10, 5]
