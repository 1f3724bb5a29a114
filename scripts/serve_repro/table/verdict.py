"""Measured against published: per value reproduced, close, not reproduced, undecided, missing, or
not comparable. First what must match exactly; a smoke run is never compared; what is missing never
counts as reproduced."""

from __future__ import annotations

import math
import statistics
from typing import Any

import pandas as pd

from serve_repro.recipe.published import Bands, Published, Value

COLUMNS = (
    "publication",
    "recipe",
    "concurrency",
    "metric",
    "published",
    "measured",
    "deviation_percent",
    "n",
    "cv_percent",
    "low",
    "high",
    "verdict",
    "why",
)

T_975 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
"""Student's t, two-sided 95 %, by degrees of freedom from 1; beyond 30 the last one, which is wider."""


def verdicts(summary: pd.DataFrame, published: list[Published], repeats: int = 1) -> pd.DataFrame:
    """One row a published value.

    Args:
        summary: summary.csv; several rows of one point are repeats.
        published: what to compare with.
        repeats: how many rows a point must have; with fewer it is missing.
    """
    rows = []
    for publication in published:
        own = summary[summary["recipe"] == publication.recipe]
        for value in publication.values:
            points = own[own["concurrency"] == value.concurrency]
            rows.append(
                {
                    "publication": publication.name,
                    "recipe": publication.recipe,
                    "concurrency": value.concurrency,
                    "metric": value.metric,
                    "published": value.value,
                    **_compare(points, value, publication, repeats),
                }
            )
    return pd.DataFrame(rows, columns=list(COLUMNS), dtype=object)


def _compare(points: pd.DataFrame, value: Value, publication: Published, repeats: int) -> dict[str, Any]:
    if points.empty:
        return {"verdict": "missing", "why": "this point is not in the summary"}
    if len(points) < repeats:
        return {"verdict": "missing", "why": f"{len(points)} of {repeats} runs are in the summary"}
    differences = _differences(points, publication.conditions)
    if differences:
        return {"verdict": "not comparable", "why": "; ".join(differences)}
    measured = points[value.metric].dropna() if value.metric in points else pd.Series(dtype=float)
    if len(measured) < len(points):
        return {"verdict": "missing", "why": "not every run of this point has the metric"}
    return _judge([float(number) for number in measured], float(value.value), publication.bands)


def _differences(points: pd.DataFrame, conditions: dict[str, str | int]) -> list[str]:
    """What is not as published, as sentences; a column that is absent is a difference."""
    told = []
    # Not left to the publication's file: one that forgets it must not let a smoke run count.
    for name, wanted in {**conditions, "validity": "submission"}.items():
        found = sorted({str(value) for value in points[name]}) if name in points else ["unknown"]
        if found != [str(wanted)]:
            told.append(f"{name} is {', '.join(found)}, published with {wanted}")
    return told


def _judge(measured: list[float], published: float, bands: Bands) -> dict[str, Any]:
    count, mean = len(measured), statistics.fmean(measured)
    spread = statistics.stdev(measured) if count > 1 else 0.0
    half = T_975[min(count - 1, len(T_975)) - 1] * spread / math.sqrt(count) if count > 1 else 0.0
    low, high = (100 * (edge - published) / published for edge in (mean - half, mean + half))
    nearest = 0.0 if low <= 0 <= high else min(abs(low), abs(high))
    verdict, worst = _band(nearest, bands), _band(max(abs(low), abs(high)), bands)
    if verdict != worst:
        verdict, why = "undecided", f"the 95 % interval reaches from {verdict} to {worst}"
    elif count == 1:
        why = "one run: its spread is not known"
    else:
        why = f"{count} runs, 95 % interval of the mean"
    return {
        "measured": mean,
        "deviation_percent": round(100 * (mean - published) / published, 3),
        "n": count,
        "cv_percent": round(100 * spread / mean, 3) if count > 1 and mean else None,
        "low": mean - half if count > 1 else None,
        "high": mean + half if count > 1 else None,
        "verdict": verdict,
        "why": why,
    }


def _band(deviation_percent: float, bands: Bands) -> str:
    # Rounded far below any band: 5 % of a number must not be 5.000000001 %.
    deviation = round(deviation_percent, 9)
    if deviation <= bands.reproduced_percent:
        return "reproduced"
    return "close" if deviation <= bands.close_percent else "not reproduced"
