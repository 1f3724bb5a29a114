"""The field's plot: throughput per GPU against interactivity, one line a recipe, one dot a point."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import pandas as pd
from matplotlib import pyplot as plt

X, Y = "interactivity_p50_tok_s_user", "total_tput_tok_s_gpu"


def throughput_against_interactivity(table: pd.DataFrame, target: Path) -> None:
    """Write the plot; the file's ending decides its format."""
    mpl.use("Agg")
    # Fixed ids and no date: the same table gives the same bytes.
    mpl.rcParams["svg.hashsalt"] = "serve-repro"
    figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
    for recipe, points in table.sort_values("concurrency").groupby("recipe"):
        axes.plot(points[X], points[Y], marker="o", label=str(recipe))
        for _, point in points.iterrows():
            axes.annotate(
                f"conc {point['concurrency']}",
                (point[X], point[Y]),
                textcoords="offset points",
                xytext=(6, 6),
                fontsize=9,
            )
    unit = "/".join(sorted(set(table["accelerator"])))
    axes.set_xlabel("interactivity, p50 (tokens/s/user)")
    axes.set_ylabel(f"total throughput per accelerator (tokens/s/{unit})")
    kinds = "/".join(sorted(set(table["validity"])))
    axes.set_title(f"Throughput against interactivity ({kinds} runs)")
    # From 0, so that distances are honest; room on the right and on top for the labels.
    axes.set_xlim(0, 1.15 * table[X].max())
    axes.set_ylim(0, 1.1 * table[Y].max())
    axes.grid(alpha=0.3)
    axes.legend(loc="lower left")
    target.parent.mkdir(parents=True, exist_ok=True)
    svg_metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))  # none: no foreign names in it
    figure.savefig(target, metadata=svg_metadata if target.suffix == ".svg" else None, dpi=150)
    plt.close(figure)
