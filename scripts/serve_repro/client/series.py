"""The server's metrics through the window, as the client sampled them, in slices of time."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from serve_repro.client.artifacts import sampled


class Series(NamedTuple):
    """One metric: counters as growth per second, gauges as the mean of each slice."""

    at_s: list[float]
    """Middle of each slice, in seconds from the start of the first one of any metric."""
    values: list[float]


def read_series(artifacts: Path, names: Iterable[str]) -> dict[str, Series]:
    """{metric: its samples}; a metric that was not sampled is absent.

    Raises:
        UserError: the export is damaged.
    """
    slices = {name: (sampled(artifacts, name) or {}).get("timeslices") for name in names}
    told = {name: parts for name, parts in slices.items() if parts}
    begin = min((part["start_ns"] for parts in told.values() for part in parts), default=0)
    return {name: _series(parts, begin) for name, parts in told.items()}


def _series(parts: list[dict[str, Any]], begin_ns: int) -> Series:
    kept = [(part, part["rate"] if "rate" in part else part.get("avg")) for part in parts]
    return Series(
        [
            round(((part["start_ns"] + part["end_ns"]) / 2 - begin_ns) / 1e9, 3)
            for part, value in kept
            if isinstance(value, int | float)
        ],
        [float(value) for _, value in kept if isinstance(value, int | float)],
    )
