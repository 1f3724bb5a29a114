"""summary.csv: one row a point and repeat, units in the column names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from serve_repro.client.artifacts import aggregate, records, totals
from serve_repro.client.kept import Kept
from serve_repro.client.phases import read_phases
from serve_repro.documents import read_json
from serve_repro.errors import UserError
from serve_repro.result_paths import repeat_of
from serve_repro.source import short
from serve_repro.table.metrics import (
    accounting,
    gauge_metrics,
    request_metrics,
    server_metrics,
    theoretical_hits,
)

NEEDED = (
    *("recipe", "site", "concurrency", "status", "validity", "window_s", "accelerator"),
    *("world_size", "nodes", "attempt", "seconds", "gates", "started", "identity"),
)
"""What a row is made of; replay.json holds more."""

IDENTITY = ("plan", "weights", "image", "patches", "dataset", "client", "driver")


def row(replay: Path) -> dict[str, Any]:
    """One point's row.

    Args:
        replay: its replay.json; the artifacts stand in the attempt that it names.

    Raises:
        UserError: it was written by an earlier version, and lacks what a row needs.
    """
    point = read_json(replay)
    lacking = [key for key in NEEDED if key not in point]
    if lacking:
        raise UserError(
            f"was written by an earlier version: it has no {', '.join(lacking)}",
            where=str(replay),
            remedy=f"measure the point again: snakemake ... -R {replay}",
        )
    attempt = replay.parent / point["attempt"]
    artifacts = attempt / "client" / "artifacts"
    kept = Kept(records(artifacts))
    counts = totals(kept)
    outcomes = [gate["outcome"] for gate in point["gates"]]
    return {
        "recipe": point["recipe"],
        "site": point["site"],
        "concurrency": point["concurrency"],
        "repeat": repeat_of(replay),
        "status": point["status"],
        "validity": point["validity"],
        "window_s": point["window_s"],
        "accelerator": point["accelerator"],
        "gpus": point["world_size"],
        "nodes": " ".join(point["nodes"]),
        **request_metrics(kept, point["world_size"], point["window_s"]),
        "requests_failed": counts.failed,
        "requests_warmup": counts.warmup,
        **accounting(read_phases(artifacts.parent / "client.log")),
        **theoretical_hits(aggregate(artifacts)),
        **server_metrics(attempt / "metrics_before.txt", attempt / "metrics_after.txt"),
        **gauge_metrics(artifacts),
        "boot_s": point["seconds"]["boot"],
        "held_idle_s": point["seconds"].get("held_idle"),
        "gates_passed": outcomes.count("pass"),
        "gates_total": len(outcomes),
        "started": point["started"],
        **{f"{name}_id": _short(point["identity"][name]) for name in IDENTITY},
        "workflow_commit": short(point.get("workflow")),
        "reused_from": _reused(point),
        "attempt": str(attempt),
    }


def summary(replays: list[Path]) -> pd.DataFrame:
    """All rows, in the order of the points."""
    return pd.DataFrame([row(path) for path in replays])


def _reused(point: dict[str, Any]) -> str | None:
    """Name of the other checkout, and the start of its replay.json's hash; None: measured here."""
    reused = point.get("reused")
    return f"{reused['from']}:{_short(reused['replay'])}" if reused else None


def _short(value: object) -> object:
    """Twelve characters of a hash: enough to compare, short enough to read."""
    return value.removeprefix("sha256:")[:12] if isinstance(value, str) else value
