"""The replay client's command and environment, from the recipe and a concurrency."""

from __future__ import annotations

from serve_repro.command import Command
from serve_repro.plan.model import ClientPlan
from serve_repro.recipe.recipe import Recipe, Replay

SUBMISSION_MIN_S = 900
"""Shortest window that the benchmark's own rules accept."""

SYSTEM_IDLE_CAP_S = 10
"""The scenario lets the whole system idle for at most this long (agentx-harness locks it)."""

LANE_GAP_OF_WINDOW = 4
"""A lane that is silent for more than this part of the window is dead, whatever cap a recipe sets."""


def client_plan(recipe: Recipe, concurrency: int, smoke: bool) -> ClientPlan:
    """agentx-harness for one point; `smoke` adds the override that marks it as no submission."""
    replay = recipe.replay
    address = "http://127.0.0.1:${API_PORT}"  # the client runs on rank 0's node
    argv = [
        *["${CLIENT_PYTHON}", "-m", "aiperf", "profile"],
        *["--scenario", replay.scenario],
        *["--url", address],
        *["--endpoint", "/v1/chat/completions"],
        *["--endpoint-type", "chat", "--streaming"],
        *["--model", recipe.model.served_name],
        *["--tokenizer", recipe.model.id, "--tokenizer-trust-remote-code"],
        *["--concurrency", str(concurrency)],
        *["--benchmark-duration", str(replay.duration_s)],
        *["--benchmark-grace-period", str(replay.drain_s)],
        *["--stats-interval", str(replay.stats_interval_s)],
        *["--random-seed", str(replay.random_seed)],
        *["--failed-request-threshold", str(replay.failed_request_threshold)],
        *["--trajectory-start-min-ratio", str(replay.trajectory_start_min_ratio)],
        *["--trajectory-start-max-ratio", str(replay.trajectory_start_max_ratio)],
        *["--warmup-requests-per-lane", str(replay.warmup_requests_per_lane)],
        *["--warmup-grace-period", str(replay.warmup_grace_s)],
        *["--trace-idle-gap-cap-seconds", str(replay.trace_idle_gap_cap_s)],
        *["--use-server-token-count", "--no-gpu-telemetry"],
        *["--server-metrics", f"{address}/metrics"],
        *["--num-dataset-entries", str(replay.dataset.entries)],
        *["--slice-duration", str(replay.slice_s)],
        *["--ui", "none"],
        *["--output-artifact-dir", "${RUN_DIR}/client/artifacts"],
        *_dataset(replay),
        *(["--unsafe-override"] if smoke else []),
    ]
    env = {
        "SERVE_REPRO_RUN_ID": "${RUN_ID}",
        "SERVE_REPRO_RANK": "client",  # a mark too: its leftovers are told from a rank's
        "HF_HUB_OFFLINE": "1",
        "HF_HUB_CACHE": "${HUB_DIR}",
        "TMPDIR": "${SCRATCH}",
        "HOME": "${SCRATCH}",  # it keeps a cache and a log below ~
        "AIPERF_DATASET_MMAP_CACHE_DIR": "${SCRATCH}/mmap",
        **replay.env,
    }
    limit = replay.warmup_grace_s + replay.duration_s + replay.drain_s + recipe.deadlines.client_setup_s
    return ClientPlan(
        command=Command(argv=argv, env=env),
        tokenizer=recipe.model.id,
        hub_traces=replay.dataset.hub is not None,
        duration_s=replay.duration_s,
        idle_gap_s=min(SYSTEM_IDLE_CAP_S, replay.trace_idle_gap_cap_s),
        lane_gap_s=min(replay.trace_idle_gap_cap_s, replay.duration_s / LANE_GAP_OF_WINDOW),
        limit_s=limit,
    )


def smoke_reasons(replay: Replay) -> list[str]:
    """Why this replay is no submission under the benchmark's own rules; empty if it is one."""
    reasons = []
    if replay.duration_s < SUBMISSION_MIN_S:
        reasons.append(f"window {replay.duration_s} s is under {SUBMISSION_MIN_S} s")
    if replay.dataset.hub is None:
        reasons.append("the traces are made, not published")
    return reasons


def _dataset(replay: Replay) -> list[str]:
    if replay.dataset.hub is not None:
        return ["--public-dataset", replay.dataset.hub.loader]
    return ["--custom-dataset-type", "weka_trace", "--input-file", "${TRACES_DIR}"]
