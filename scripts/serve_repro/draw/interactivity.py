"""The field's plot: throughput per accelerator against interactivity, one line a recipe.

Where a point was measured several times the line goes through the means, and each run is a small dot.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes

from serve_repro.draw.figure import COLOURS, drawn
from serve_repro.recipe.published import Published

X, Y = "interactivity_p50_tok_s_user", "total_tput_tok_s_gpu"


def draw(table: pd.DataFrame, published: list[Published], target: Path) -> None:
    """Draw summary.csv; published points stand beside ours where both numbers are published.

    Args:
        table: summary.csv.
        published: publications; one that does not name both numbers of a point cannot be placed.
        target: .svg or .png file.
    """
    with drawn(target, 7, 4.5) as figure:
        axes = figure.subplots()
        for number, (recipe, runs) in enumerate(table.groupby("recipe")):
            colour = COLOURS[number % len(COLOURS)]
            points = runs.groupby("concurrency")[[X, Y]].mean()
            repeated = len(runs) > len(points)
            label = f"{recipe}, mean of runs" if repeated else str(recipe)
            axes.plot(points[X], points[Y], marker="o", color=colour, label=label)
            if repeated:
                axes.plot(
                    runs[X], runs[Y], "o", color=colour, alpha=0.45, markersize=4, label="each run"
                )
            for concurrency, point in points.iterrows():
                _label(axes, point[X], point[Y], concurrency)
        theirs = [(x, y, conc) for entry in published for x, y, conc in both(entry)]
        if theirs:
            xs, ys, _ = zip(*theirs, strict=True)
            axes.plot(xs, ys, "D", markerfacecolor="none", color="black", label="published")
        unit = "/".join(sorted(set(table["accelerator"])))
        axes.set_xlabel("interactivity, p50 (tokens/s/user)")
        axes.set_ylabel(f"total throughput per accelerator (tokens/s/{unit})")
        axes.set_title(f"Throughput against interactivity ({_kinds(table)} runs)")
        # From 0, so that distances are honest; room on the right and on top for the labels.
        axes.set_xlim(0, 1.15 * max([table[X].max(), *(x for x, _, _ in theirs)]))
        axes.set_ylim(0, 1.1 * max([table[Y].max(), *(y for _, y, _ in theirs)]))
        axes.legend(loc="lower left")


def both(entry: Published) -> list[tuple[float, float, int]]:
    """(interactivity, throughput, concurrency) of the published points that name both."""
    found: dict[int, dict[str, float]] = {}
    for value in entry.values:
        found.setdefault(value.concurrency, {})[value.metric] = float(value.value)
    return [(at[X], at[Y], conc) for conc, at in sorted(found.items()) if X in at and Y in at]


def _label(axes: Axes, x: float, y: float, concurrency: object) -> None:
    axes.annotate(f"conc {concurrency}", (x, y), textcoords="offset points", xytext=(6, 6), fontsize=9)


def _kinds(table: pd.DataFrame) -> str:
    return "/".join(sorted(set(table["validity"])))
