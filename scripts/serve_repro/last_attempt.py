"""The newest attempt at a point or an evaluation, and what it says of itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from serve_repro.documents import read_json

_LOST = {"status": "lost", "reason": "its launcher has not said why"}


def newest(result: Path) -> Path | None:
    """The folder of the newest attempt at a result, made or not; None before the first."""
    attempts = sorted((result.parent / "attempts").glob("*/"))
    return attempts[-1] if attempts else None


def said(attempt: Path) -> dict[str, Any]:
    """Its point.json; status `lost` where its launcher wrote none."""
    told = attempt / "point.json"
    point: dict[str, Any] = read_json(told) if told.is_file() else _LOST
    return point
