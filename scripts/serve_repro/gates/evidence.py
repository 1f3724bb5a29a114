"""What the gates look at, read once from an attempt's folder."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

from serve_repro.client.artifacts import Activity, Totals, activity, aggregate, totals
from serve_repro.client.server_metrics import labels_of, read_counters
from serve_repro.documents import read_json
from serve_repro.patches.attestation import read_attestations

_WORLD = re.compile(r"rank (\d+) in world size (\d+) is assigned")


class Evidence(NamedTuple):
    """One attempt's artifacts."""

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
    workers: set[tuple[int, int]]
    """(worker rank, world size) of every worker that said so in a rank's log."""
    attestations: list[list[dict[str, Any]]]
    """Patch attestations by rank."""
    hooks: list[dict[str, Any]]
    """The hooks of the patch set that the ranks were given."""


def collect(attempt: Path, ranks: int, patch_folder: Path) -> Evidence:
    """Read an attempt's folder.

    Raises:
        FileNotFoundError, UserError: an artifact is missing or damaged.
    """
    client = attempt / "client" / "artifacts"
    after = attempt / "metrics_after.txt"
    logs = [attempt / f"rank{rank}" for rank in range(ranks)]
    return Evidence(
        totals=totals(client),
        activity=activity(client),
        aggregate=aggregate(client),
        before=read_counters(attempt / "metrics_before.txt"),
        after=read_counters(after),
        offload_info=labels_of(after, "vllm:simple_kv_offload_info"),
        cache_info=labels_of(after, "vllm:cache_config_info"),
        model=read_json(attempt / "serving.json")["model"],
        workers={pair for folder in logs for pair in _workers(folder / "server.log")},
        hooks=read_json(patch_folder / "set.json")["hooks"],
        attestations=[read_attestations(folder / "attestations.jsonl") for folder in logs],
    )


def _workers(log: Path) -> set[tuple[int, int]]:
    with log.open(encoding="utf-8", errors="replace") as stream:
        return {(int(match[1]), int(match[2])) for line in stream for match in _WORLD.finditer(line)}
