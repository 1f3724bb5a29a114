"""What the gates look at, read once from an attempt's folder."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

from serve_repro.client.artifacts import Activity, Totals, activity, aggregate, records, totals
from serve_repro.client.kept import Kept
from serve_repro.client.lanes import Sessions, sessions
from serve_repro.client.phases import Phase, read_phases
from serve_repro.client.server_metrics import labels_of, models_of, read_counters
from serve_repro.client.server_series import longest_unsampled_s
from serve_repro.documents import read_json
from serve_repro.patches.attestation import read_attestations, wanted

_WORLD = re.compile(
    r"world_size=(?P<of>\d+) rank=(?P<rank>\d+) local_rank="
    r"|rank (?P<rank_2>\d+) in world size (?P<of_2>\d+) is assigned"
)
"""Every worker says the first; of each node's workers only the first says the second."""
_PLACE = re.compile(r"rank (\d+) in world size \d+ is assigned as DP rank (\d+), PP rank (\d+),")
_HOST_BLOCKS = re.compile(
    r"SimpleCPUOffloadWorker\b.* (\d+) (?:CPU blocks|disk slots)(?: \(([\d.]+) GB\))?"
)
_SCHEDULER_BLOCKS = re.compile(r"SimpleCPUOffloadScheduler: Allocating (\d+) ")
_ASYNC = re.compile(r"Asynchronous scheduling is (enabled|disabled)")
_ASYNC_ASKED = re.compile(r"non-default args: .*'async_scheduling': (True|False)")
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
    fault: str | None
    """The first line that tells of a fault, with its number."""
    stages: dict[int, int] = {}
    """{worker rank: its pipeline stage}, of the workers that said so."""
    replicas: set[int] = set()
    """Data-parallel ranks that its workers named."""
    host_gib: list[float] = []
    """GiB of host memory of each worker that said so, to two decimals."""
    scheduler_blocks: int | None = None
    """Host blocks that the scheduler of KV offload says it hands out."""
    async_scheduling: bool | None = None
    """Whether scheduling is asynchronous, if the server says so."""
    async_asked: bool | None = None
    """What its command line asks for, as the server repeats it."""


class Serving(NamedTuple):
    """What a server tells of itself once it serves."""

    offload_info: dict[str, str] | None
    """Labels of the offload connector's info metric; None if the server has none."""
    cache_info: dict[str, str] | None
    """Labels of the cache's info metric."""
    model: dict[str, Any]
    """The API's own entry of the model, from /v1/models."""
    metrics_of: set[str]
    """Models that /metrics speaks of."""
    counters: dict[str, float]
    """What /metrics says, by name."""
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
    sessions: Sessions
    """When each session tree had requests under way."""
    phases: dict[str, Phase]
    """What the client's log says of its phases."""
    unsampled_s: float | None
    """Longest time of the window in which the client got no metrics; None if it never got any."""
    aggregate: dict[str, Any]
    before: dict[str, float]
    """Server counters before the client started."""
    after: dict[str, float]
    """Server counters after it ended; none if /metrics did not answer then."""
    job: str | None
    """Slurm's own record of the job; None if there is none."""
    clocks: dict[str, dict[str, float] | None]
    """{node: {offset_s, round_trip_s} against the launcher's clock, None if it was not compared}."""
    offload_info: dict[str, str] | None
    """Labels of the offload connector's info metric; None if the server has none."""
    cache_info: dict[str, str] | None
    """Labels of the cache's info metric."""
    model: dict[str, Any]
    """The API's own entry of the model, from /v1/models."""
    metrics_of: set[str]
    """Models that /metrics speaks of."""
    counters: dict[str, float]
    """What /metrics says, by name."""
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
    before, after = attempt / "metrics_before.txt", attempt / "metrics_after.txt"
    job = attempt / "slurm_job.txt"
    kept = Kept(records(client))
    return Evidence(
        totals=totals(kept),
        activity=activity(kept),
        sessions=sessions(kept),
        phases=read_phases(client.parent / "client.log"),
        unsampled_s=longest_unsampled_s(client),
        aggregate=aggregate(client),
        before=read_counters(before),
        after=read_counters(after) if after.is_file() else {},
        job=job.read_text(encoding="utf-8") if job.is_file() else None,
        clocks={visit["node"]: visit["clock"] for visit in read_json(attempt / "nodes.json")},
        **collect_serving(attempt, ranks, patch_folder, after if after.is_file() else before)._asdict(),
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
        metrics_of=models_of(metrics),
        counters=read_counters(metrics),
        logs=[read_log(folder / "server.log") for folder in folders],
        hooks=wanted(patch_folder),
        attestations=[read_attestations(folder / "attestations.jsonl") for folder in folders],
    )


def read_log(path: Path) -> RankLog:
    """One pass over a rank's log, line by line: logs of long runs do not fit into memory."""
    number, stopping, fault = 0, False, None
    workers: set[tuple[int, int]] = set()
    host_blocks: list[int] = []
    host_gib: list[float] = []
    stages: dict[int, int] = {}
    replicas: set[int] = set()
    scheduler_blocks, async_scheduling, async_asked = None, None, None
    with path.open(encoding="utf-8", errors="replace") as stream:
        for number, line in enumerate(stream, start=1):
            for met in _WORLD.finditer(line):
                workers.add((int(met["rank"] or met["rank_2"]), int(met["of"] or met["of_2"])))
            if match := _PLACE.search(line):
                stages[int(match[1])] = int(match[3])
                replicas.add(int(match[2]))
            if match := _HOST_BLOCKS.search(line):
                host_blocks.append(int(match[1]))
                host_gib += [float(match[2])] if match[2] else []
            if match := _SCHEDULER_BLOCKS.search(line):
                scheduler_blocks = int(match[1])
            if match := _ASYNC.search(line):
                async_scheduling = match[1] == "enabled"
            if match := _ASYNC_ASKED.search(line):
                async_asked = match[1] == "True"
            stopping = stopping or _STOP in line
            dead = _DEAD_ENGINE in line and not stopping
            if fault is None and (dead or _FAULT.search(line)):
                fault = f"line {number}: {line.strip()[:_LINE_CHARACTERS]}"
    return RankLog(
        lines=number,
        workers=workers,
        host_blocks=host_blocks,
        fault=fault,
        stages=stages,
        replicas=replicas,
        host_gib=host_gib,
        scheduler_blocks=scheduler_blocks,
        async_scheduling=async_scheduling,
        async_asked=async_asked,
    )
