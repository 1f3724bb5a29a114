"""Small attempts on disk, in the format that the real client and the real server leave."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from serve_repro.table.rows import IDENTITY

S = 1_000_000_000
"""Nanoseconds of a second; records count in them."""

START = 1_796_092_480 * S


def record(
    phase: str = "profiling",
    start_s: float = 0.0,
    end_s: float = 1.0,
    tokens: tuple[int, int] | None = (100, 10),
    ttft_ms: float | None = 200.0,
    itl_ms: float | None = 20.0,
    error: dict[str, Any] | None = None,
    cancelled: bool = False,
    tree: str = "tree-1",
    subagent: bool = False,
    length_off_pct: float = 0.0,
) -> dict[str, Any]:
    """One line of profile_export.jsonl. Times in seconds from the start; tokens: (input, output)."""
    values = {
        "request_latency": (end_s - start_s) * 1000,
        "time_to_first_token": ttft_ms,
        "inter_token_latency": itl_ms,
        "osl_mismatch_diff_pct": length_off_pct,
    }
    if tokens is not None:
        values |= {"usage_prompt_tokens": tokens[0], "usage_completion_tokens": tokens[1]}
    row: dict[str, Any] = {
        "metadata": {
            "session_num": 0,
            "benchmark_phase": phase,
            "request_start_ns": START + round(start_s * S),
            "request_end_ns": START + round(end_s * S),
            "was_cancelled": cancelled,
            "root_correlation_id": tree,
            "agent_depth": int(subagent),
        },
        "metrics": {
            name: {"value": value, "unit": "x"} for name, value in values.items() if value is not None
        },
    }
    return row if error is None else row | {"metrics": {}, "error": error}


def write_artifacts(
    folder: Path,
    rows: list[dict[str, Any]],
    duration_s: float | None = 20.0,
    cancelled: bool | None = False,
) -> Path:
    """The client's artifact folder: records and aggregate."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(row, separators=(",", ":")) for row in rows]
    (folder / "profile_export.jsonl").write_text("\n".join([*lines, ""]), encoding="utf-8")
    profiled = [row for row in rows if row["metadata"]["benchmark_phase"] == "profiling"]
    failed = sum("error" in row for row in profiled)
    counts = {"request_count": len(profiled) - failed}
    if failed:  # the real client leaves a count of no errors out
        counts["error_request_count"] = failed
    aggregate: dict[str, Any] = {"schema_version": "1.4"}
    aggregate |= {name: {"unit": "requests", "avg": float(n)} for name, n in counts.items()}
    if duration_s is not None:
        aggregate["benchmark_duration"] = {"unit": "sec", "avg": duration_s}
    if cancelled is not None:
        aggregate["was_cancelled"] = cancelled
    (folder / "profile_export_aiperf.json").write_text(json.dumps(aggregate), encoding="utf-8")
    return folder


def metrics_text(counters: dict[str, float], infos: dict[str, dict[str, str]] | None = None) -> str:
    """A /metrics answer: each counter split over two engines, each info as a gauge that is 1."""
    lines = []
    for name, value in counters.items():
        lines += [f"# HELP {name} Help.", f"# TYPE {name} counter"]
        own = 'model_name="serve-repro/tiny-llama"'
        lines += [f'{name}{{engine="{engine}",{own}}} {value / 2}' for engine in (0, 1)]
    for name, labels in (infos or {}).items():
        text = ",".join(f'{key}="{value}"' for key, value in labels.items())
        lines += [f"# HELP {name} Help.", f"# TYPE {name} gauge", f"{name}{{{text}}} 1.0"]
    return "\n".join(lines) + "\n"


COUNTERS = {"vllm:prompt_tokens_total": 400.0, "vllm:generation_tokens_total": 40.0}
"""What the server counts for `good_rows`."""

INFOS = {
    "vllm:simple_kv_offload_info": {"backend": "cpu", "capacity_blocks": "1024"},
    "vllm:cache_config_info": {"block_size": "128", "enable_prefix_caching": "True"},
}


def good_rows() -> list[dict[str, Any]]:
    """One request of the warm-up and three of the window."""
    return [
        record("warmup", 0, 1),
        record(start_s=2, end_s=3, ttft_ms=100.0, itl_ms=10.0),
        record(start_s=2.5, end_s=4.5, ttft_ms=200.0, itl_ms=20.0),
        record(start_s=4, end_s=7, ttft_ms=300.0, itl_ms=30.0),
    ]


def attestation(patch: str, rank: int, **more: Any) -> dict[str, Any]:
    return {"patch": patch, "rank": rank, "process": "worker", "pid": 1, "installed": True, **more}


CLIENT_LOG = """\
19:21:53.974 NOTICE   Phase warmup (warmup) sending complete | sent=1, completed=0, in_flight=1 | x
19:21:54.275 NOTICE   Phase warmup (warmup) complete | completed=1, cancelled=0, errors=0 | x
19:22:14.287 NOTICE   Phase profiling (profiling) sending complete | sent=3, completed=2, in_flight=1 | x
19:22:14.847 NOTICE   Phase profiling (profiling) complete | completed=3, cancelled=0, errors=0 | x
"""
"""What the client says of `good_rows`."""


def write_series(folder: Path, sampled: list[int], window_s: int = 20) -> None:
    """The client's export of the server's metrics: in which seconds of the window it had some."""
    slices = [{"start_ns": START + s * S, "end_ns": START + (s + 1) * S} for s in sampled]
    window = {"start_ns": START, "end_ns": START + window_s * S}
    series = [{"labels": {}, "stats": {"avg": 1.0, "max": 2.0}, "timeslices": slices}]
    export = {
        "summary": {"phase_time_ranges": {"profiling": window}},
        "metrics": {"vllm:num_requests_running": {"series": series}},
    }
    (folder / "server_metrics_export.json").write_text(json.dumps(export), encoding="utf-8")


def write_attempt(folder: Path, hooks: list[str], ranks: int = 2) -> Path:
    """A valid attempt of the tiny recipe, with the built patch set in <folder>/patches."""
    write_artifacts(folder / "client/artifacts", good_rows())
    write_series(folder / "client/artifacts", list(range(20)))
    (folder / "client/client.log").write_text(CLIENT_LOG, encoding="utf-8")
    zero = dict.fromkeys(COUNTERS, 0.0)
    (folder / "metrics_before.txt").write_text(metrics_text(zero, INFOS), encoding="utf-8")
    (folder / "metrics_after.txt").write_text(metrics_text(COUNTERS, INFOS), encoding="utf-8")
    clock = {"offset_s": 0.001, "round_trip_s": 0.002}
    nodes = [{"node": node, "clock": clock} for node in ("n0", "n1")]
    (folder / "nodes.json").write_text(json.dumps(nodes), encoding="utf-8")
    model = {"id": "serve-repro/tiny-llama", "max_model_len": 32768}
    (folder / "serving.json").write_text(json.dumps({"model": model}), encoding="utf-8")
    for rank in range(ranks):
        own = folder / f"rank{rank}"
        own.mkdir()
        log = (
            f"INFO x.py:1] rank {rank} in world size {ranks} is assigned as DP rank 0, PP rank {rank}\n"
        )
        log += "INFO worker.py:213] SimpleCPUOffloadWorker [CPU]: 2 tensors, 1024 CPU blocks (0.06 GB)\n"
        (own / "server.log").write_text("INFO boot\n" + log, encoding="utf-8")
        lines = [json.dumps(attestation(hook, rank)) for hook in hooks]
        (own / "attestations.jsonl").write_text("\n".join([*lines, ""]), encoding="utf-8")
    (folder / "patches").mkdir()
    built = {"hooks": [{"id": hook, "processes": ["worker"]} for hook in hooks]}
    (folder / "patches/set.json").write_text(json.dumps(built), encoding="utf-8")
    (folder / "patches/overlay.json").write_text('{"files": [], "patches": []}', encoding="utf-8")
    return folder


def write_point(folder: Path) -> tuple[Path, Path]:
    """A point's folder with a valid attempt: (its replay.json, the attempt)."""
    attempt = write_attempt(folder / "attempts/20260101T000000Z", [])
    point = {
        **dict.fromkeys(("recipe", "site", "status", "validity", "accelerator", "started"), "x"),
        "concurrency": 2,
        "world_size": 2,
        "window_s": 20,
        "nodes": ["n0", "n1"],
        "attempt": "attempts/20260101T000000Z",
        "seconds": {"boot": 31.5},
        "gates": [{"outcome": "pass"}, {"outcome": "unknown"}, {"outcome": "fail"}],
        "identity": dict.fromkeys(IDENTITY, "sha256:" + "ab" * 32) | {"driver": 1},
    }
    replay = folder / "replay.json"
    replay.write_text(json.dumps(point), encoding="utf-8")
    return replay, attempt


def write_evaluation(results: Path, lowest: float) -> Path:
    """A valid evaluation of the recipe tiny with a threshold of 0.9; returns its eval.json."""
    folder = results / "tiny/eval/gsm8k"
    artifacts = folder / "attempts/20260101T000001Z/client/artifacts/served"
    artifacts.mkdir(parents=True)
    scores = {"exact_match,strict-match": lowest, "exact_match,flexible-extract": 0.97}
    export = {"results": {"served_gsm8k": scores}, "n-shot": {"served_gsm8k": 5}}
    (artifacts / "results_1.json").write_text(json.dumps(export), encoding="utf-8")
    sample = {"doc_id": 0, "doc": {"question": "1 + 1?"}, "resps": [["#### 2"]]}
    (artifacts / "samples_served_gsm8k_1.jsonl").write_text(json.dumps(sample), encoding="utf-8")
    accuracy = {"threshold": 0.9, "rejection": "block"}
    (folder / "plan.json").write_text(json.dumps({"accuracy": accuracy}), encoding="utf-8")
    done = {
        "recipe": "tiny",
        "site": "here",
        "status": "valid",
        "validity": "submission",
        "started": "2026-01-01T00:00:01+00:00",
        "nodes": ["n0"],
        "attempt": "attempts/20260101T000001Z",
        "gates": [{"gate": "scored", "outcome": "pass", "seen": "x"}],
        "identity": dict.fromkeys(IDENTITY, "sha256:" + "a" * 64),
    }
    (folder / "eval.json").write_text(json.dumps(done), encoding="utf-8")
    return folder / "eval.json"
