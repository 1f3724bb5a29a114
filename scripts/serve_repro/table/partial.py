"""summary.partial.csv: every point of a run, valid or not, with its status and the reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from serve_repro.documents import write_text
from serve_repro.errors import UserError
from serve_repro.last_attempt import newest, said
from serve_repro.result_paths import run_of
from serve_repro.table.rows import row

PARTIAL = Path("results/summary.partial.csv")
_FIRST = ["recipe", "concurrency", "repeat", "status", "reason"]
_KEPT = ("site", "validity", "accelerator", "started")


def write_partial(points: list[str]) -> None:
    """Write the table of all points of this run, whatever has become of them.

    Args:
        points: the points' replay.json, made or not.
    """
    # As objects: a count beside an empty cell stays a whole number.
    table = pd.DataFrame([status_row(Path(point)) for point in points], dtype=object)
    columns = [*_FIRST, *(name for name in table.columns if name not in _FIRST)]
    write_text(PARTIAL, table[columns].to_csv(index=False))


def status_row(replay: Path) -> dict[str, Any]:
    """The full row of a valid point; otherwise what its newest attempt says of itself.

    An attempt that failed a gate has numbers. They are left out: a number without a valid point
    behind it must not stand in a table.
    """
    try:
        if replay.is_file():
            return row(replay) | {"reason": ""}
        return _without_result(replay)
    except (OSError, ValueError, KeyError, UserError) as error:
        return _named(replay) | {"status": "damaged", "reason": f"evidence cannot be read: {error!r}"}


def _without_result(replay: Path) -> dict[str, Any]:
    attempt = newest(replay)
    if attempt is None:
        return _named(replay) | {"status": "not measured", "reason": "no attempt was begun"}
    told = _named(replay) | {"attempt": str(attempt)}
    point = said(attempt)
    if point["status"] == "lost":
        return told | point
    if point["status"] == "valid":  # it stood here before; this time not even an attempt was begun
        return told | {"status": "not measured", "reason": "its last valid result was put away"}
    outcomes = [gate["outcome"] for gate in point["gates"]]
    return (
        told
        | {name: point[name] for name in ("status", "reason", *_KEPT)}
        | {"gpus": point["world_size"], "nodes": " ".join(point["nodes"])}
        | {"gates_passed": outcomes.count("pass"), "gates_total": len(outcomes)}
    )


def _named(replay: Path) -> dict[str, Any]:
    """Recipe, concurrency and repeat, as the point's place says them."""
    return run_of(replay)._asdict()
