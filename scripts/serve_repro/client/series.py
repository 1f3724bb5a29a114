"""The server's metrics through the window, as the client sampled them, in slices of time."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

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
    told = {name: slices for name in names if (slices := _slices(artifacts, name))}
    begin = min((slices.first_ns for slices in told.values()), default=0)
    return {
        name: Series([round((middle - begin) / 1e9, 3) for middle in slices.middles_ns], slices.values)
        for name, slices in told.items()
    }


class _Slices(NamedTuple):
    """One metric's slices, with the clock's own times."""

    first_ns: int
    middles_ns: list[float]
    values: list[float]


def _slices(artifacts: Path, name: str) -> _Slices | None:
    parts = (sampled(artifacts, name) or {}).get("timeslices")
    if not parts:
        return None
    kept = [(part, part["rate"] if "rate" in part else part.get("avg")) for part in parts]
    told = [(part, value) for part, value in kept if isinstance(value, int | float)]
    return _Slices(
        min(part["start_ns"] for part in parts),
        [(part["start_ns"] + part["end_ns"]) / 2 for part, _ in told],
        [float(value) for _, value in told],
    )
