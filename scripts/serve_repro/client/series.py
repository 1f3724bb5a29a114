"""The server's metrics through the window, as the client sampled them, in slices of time."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import ijson

from serve_repro.client.artifacts import SERVER_SERIES


class Series(NamedTuple):
    """One metric: counters as growth per second, gauges as the mean of each slice."""

    at_s: list[float]
    """Middle of each slice, in seconds from the start of the first one of any metric."""
    values: list[float]


def read_series(artifacts: Path, names: Iterable[str]) -> dict[str, Series]:
    """{metric: its samples}; a metric that was not sampled is absent.

    The file holds every bucket of every histogram and slice (some 100 MB an hour), so it is read as
    a stream, and only the wanted metrics are kept. One server has one series; of more, the first counts.
    """
    wanted, slices = set(names), {}
    with (artifacts / SERVER_SERIES).open("rb") as stream:
        for name, metric in ijson.kvitems(stream, "metrics"):
            if name in wanted and metric.get("series"):
                slices[name] = metric["series"][0].get("timeslices") or []
    starts = [part["start_ns"] for parts in slices.values() for part in parts]
    begin = min(starts, default=0)
    return {name: _series(parts, begin) for name, parts in slices.items() if parts}


def _series(parts: list[dict[str, Any]], begin_ns: int) -> Series:
    kept = [(part, part["rate"] if "rate" in part else part.get("avg")) for part in parts]
    return Series(
        [
            round(((part["start_ns"] + part["end_ns"]) / 2 - begin_ns) / 1e9, 3)
            for part, value in kept
            if isinstance(value, int | float | Decimal)
        ],
        [float(value) for _, value in kept if isinstance(value, int | float | Decimal)],
    )
