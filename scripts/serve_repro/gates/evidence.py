"""What the gates look at, read once from an attempt's folder."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

from serve_repro.client.artifacts import Activity, Totals, activity, aggregate, totals
from serve_repro.client.server_metrics import labels_of, read_counters
from serve_repro.documents import read_json
from serve_repro.patches.attestation import read_attestations, wanted

_WORLD = re.compile(r"rank (\d+) in world size (\d+) is assigned")
_HOST_BLOCKS = re.compile(r"SimpleCPUOffloadWorker\b.* (\d+) (?:CPU blocks|disk slots)")
_SCHEDULER_BLOCKS = re.compile(r"SimpleCPUOffloadScheduler: Allocating (\d+) ")
_FAULT = re.compile(
    r"Memory access fault by GPU|GPU fault|HSA_STATUS_ERROR|Segmentation fault|Segfault encountered"
)
_DEAD_ENGINE = "EngineDeadError"
_STOP = "trigger received signal"
"""What rank 0's engine says once it is told to stop; an engine that dies by itself does not say it."""
_LINE_CHARACTERS = 200


class RankLog(NamedTuple):
    """What one rank's server.log says."""

    lines: int
    workers: set[tuple[int, int]]
    """(worker rank, world size) of every worker that said so."""
    host_blocks: list[int]
    """Blocks of host memory of each worker that said so, for KV offload."""
    scheduler_blocks: int | None
    """Blocks of host memory that the scheduler numbers; None: there is none here, or it is silent."""
    fault: str | None
    """The first line that tells of a fault, with its number."""


class Serving(NamedTuple):
    """What a server tells of itself once it serves."""

    offload_info: dict[str, str] | None
    """Labels of the offload connector's info metric; None if the server has none."""
    cache_info: dict[str, str] | None
    """Labels of the cache's info metric."""
    model: dict[str, Any]
    """The API's own entry of the model, from /v1/models."""
    logs: list[RankLog]
    """By rank."""
    attestations: list[list[dict[str, Any]]]
    """Patch attestations by rank."""
    hooks: list[dict[str, Any]]
    """{id, processes} of each patch that the ranks were given."""


class Evidence(NamedTuple):
    """One attempt's artifacts: what the server told, as in Serving, and what the replay left."""

    totals: Totals
    activity: Activity | None
    """When the window's requests were under way; None if there was none."""
    aggregate: dict[str, Any]
    before: dict[str, float]
    """Server counters before the client started."""
    after: dict[str, float]
    """Server counters after it ended."""
    offload_info: dict[str, str] | None
    """Labels of the offload connector's info metric; None if the server has none."""
    cache_info: dict[str, str] | None
    """Labels of the cache's info metric."""
    model: dict[str, Any]
    """The API's own entry of the model, from /v1/models."""
    logs: list[RankLog]
    """By rank."""
    attestations: list[list[dict[str, Any]]]
    """Patch attestations by rank."""
    hooks: list[dict[str, Any]]
    """{id, processes} of each patch that the ranks were given."""


def collect(attempt: Path, ranks: int, patch_folder: Path) -> Evidence:
    """Read an attempt's folder.

    Raises:
        FileNotFoundError, UserError: an artifact is missing or damaged.
    """
    client = attempt / "client" / "artifacts"
    after = attempt / "metrics_after.txt"
    return Evidence(
        totals=totals(client),
        activity=activity(client),
        aggregate=aggregate(client),
        before=read_counters(attempt / "metrics_before.txt"),
        after=read_counters(after),
        **collect_serving(attempt, ranks, patch_folder, after)._asdict(),
    )


def collect_serving(attempt: Path, ranks: int, patch_folder: Path, metrics: Path) -> Serving:
    """Read what the server has told of itself, from a saved /metrics answer and the logs so far.

    Raises:
        FileNotFoundError, UserError: an artifact is missing or damaged.
    """
    folders = [attempt / f"rank{rank}" for rank in range(ranks)]
    return Serving(
        offload_info=labels_of(metrics, "vllm:simple_kv_offload_info"),
        cache_info=labels_of(metrics, "vllm:cache_config_info"),
        model=read_json(attempt / "serving.json")["model"],
        logs=[read_log(folder / "server.log") for folder in folders],
        hooks=wanted(patch_folder),
        attestations=[read_attestations(folder / "attestations.jsonl") for folder in folders],
    )


def read_log(path: Path) -> RankLog:
    """One pass over a rank's log, line by line: logs of long runs do not fit into memory."""
    number, stopping, fault = 0, False, None
    workers: set[tuple[int, int]] = set()
    host_blocks: list[int] = []
    scheduler_blocks = None
    with path.open(encoding="utf-8", errors="replace") as stream:
        for number, line in enumerate(stream, start=1):
            workers |= {(int(match[1]), int(match[2])) for match in _WORLD.finditer(line)}
            if match := _HOST_BLOCKS.search(line):
                host_blocks.append(int(match[1]))
            if match := _SCHEDULER_BLOCKS.search(line):
                scheduler_blocks = int(match[1])
            stopping = stopping or _STOP in line
            dead = _DEAD_ENGINE in line and not stopping
            if fault is None and (dead or _FAULT.search(line)):
                fault = f"line {number}: {line.strip()[:_LINE_CHARACTERS]}"
    return RankLog(number, workers, host_blocks, scheduler_blocks, fault)
