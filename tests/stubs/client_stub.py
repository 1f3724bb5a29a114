"""Speaks the replay client's command line and writes its export files, from a few real requests."""

from __future__ import annotations

import argparse
import json
import signal
import time
import urllib.request
from pathlib import Path
from types import FrameType
from typing import Any

TOKENS = 5


class Stopped(Exception):
    """SIGINT came: export what there is."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--url")
    parser.add_argument("--concurrency", type=int)
    parser.add_argument("--benchmark-duration", type=float)
    parser.add_argument("--output-artifact-dir", type=Path)
    options, _ = parser.parse_known_args()
    signal.signal(signal.SIGINT, stop)
    options.output_artifact_dir.mkdir(parents=True)
    cancelled, count = False, 0
    with (options.output_artifact_dir / "profile_export.jsonl").open("w") as records:
        for lane in range(options.concurrency):
            records.write(json.dumps(request(options.url, lane, "warmup")) + "\n")
        started = time.monotonic()
        try:
            while time.monotonic() - started < options.benchmark_duration:
                lane = count % options.concurrency
                records.write(json.dumps(request(options.url, lane, "profiling")) + "\n")
                records.flush()
                count += 1
                time.sleep(0.2)
        except Stopped:
            cancelled = True
    print("Phase warmup (warmup) complete | completed=0, cancelled=0, errors=0")
    print(f"Phase profiling (profiling) complete | completed={count}, cancelled=0, errors=0")
    (options.output_artifact_dir / "server_metrics_export.json").write_text(
        json.dumps(sampled(time.monotonic() - started))
    )
    aggregate = {
        "was_cancelled": cancelled,
        "request_count": {"avg": float(count)},
        "benchmark_duration": {"avg": time.monotonic() - started},
    }
    (options.output_artifact_dir / "profile_export_aiperf.json").write_text(json.dumps(aggregate))


def stop(_number: int, _frame: FrameType | None) -> None:
    raise Stopped


def sampled(seconds: float) -> dict[str, Any]:
    """The server's metrics as if sampled in one slice as long as the window."""
    window = {"start_ns": 0, "end_ns": int(seconds * 1e9)}
    series = [{"stats": {"avg": 1.0, "max": 1.0}, "timeslices": [window]}]
    return {
        "summary": {"phase_time_ranges": {"profiling": window}},
        "metrics": {"vllm:num_requests_running": {"series": series}},
    }


def request(url: str, lane: int, phase: str) -> dict[str, Any]:
    """One request, as a record."""
    body = json.dumps({"max_tokens": TOKENS}).encode()
    begun = time.time_ns()
    with urllib.request.urlopen(
        urllib.request.Request(f"{url}/v1/chat/completions", data=body), timeout=10
    ) as answer:
        usage = json.load(answer)["usage"]
    ended = time.time_ns()
    values = {
        "usage_prompt_tokens": usage["prompt_tokens"],
        "usage_completion_tokens": usage["completion_tokens"],
        "time_to_first_token": (ended - begun) / 1e6,
        "inter_token_latency": 1.0,
        "request_latency": (ended - begun) / 1e6,
        "osl_mismatch_diff_pct": 0.0,
    }
    return {
        "metadata": {
            "benchmark_phase": phase,
            "request_start_ns": begun,
            "request_end_ns": ended,
            "root_correlation_id": f"lane-{lane}",
        },
        "metrics": {name: {"value": value} for name, value in values.items()},
    }


if __name__ == "__main__":
    main()
