"""Latency percentiles and throughput by concurrency, with published values laid over them."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pandas as pd
from matplotlib.axes import Axes

from serve_repro.draw.figure import COLOURS, drawn
from serve_repro.recipe.published import Published


class Panel(NamedTuple):
    """One axes of the picture."""

    title: str
    unit: str
    columns: dict[str, str]
    """Label of a line -> column of summary.csv."""


PANELS = (
    Panel("TTFT", "ms", {name: f"ttft_{name}_ms" for name in ("p50", "p90", "p99")}),
    Panel("ITL", "ms", {name: f"itl_{name}_ms" for name in ("p50", "p90", "p99")}),
    Panel("E2E latency", "ms", {name: f"e2e_{name}_ms" for name in ("p50", "p90", "p99")}),
    Panel(
        "KV cache in use",
        "share",
        {name: f"kv_cache_usage_{name}_ratio" for name in ("mean", "max")},
    ),
    Panel("total throughput per accelerator", "tokens/s", {"total": "total_tput_tok_s_gpu"}),
    Panel("output throughput per accelerator", "tokens/s", {"output": "output_tput_tok_s_gpu"}),
)
STYLES = ("-", "--", ":", "-.")


def draw(table: pd.DataFrame, published: list[Published], target: Path) -> None:
    """Draw summary.csv: a colour a statistic, a line style a recipe, diamonds for published values.

    Args:
        table: summary.csv.
        published: publications; their values stand where they name a column that is drawn.
        target: .svg or .png file.
    """
    recipes = sorted(set(table["recipe"]))
    with drawn(target, 9, 9) as figure:
        if table.duplicated(["recipe", "concurrency"]).any():
            figure.suptitle("lines: mean of a point's runs; dots: each run", fontsize=10)
        for axes, panel in zip(figure.subplots(3, 2).flat, PANELS, strict=True):
            for style, recipe in zip(STYLES * len(recipes), recipes, strict=False):
                # Repeats of a point: the line goes through their mean, each stands as a dot.
                own = table[table["recipe"] == recipe].sort_values("concurrency")
                label = f" ({recipe})" if len(recipes) > 1 else ""
                _lines(axes, panel, own, style, label)
            _published(axes, panel, published)
            axes.set_title(panel.title)
            axes.set_ylabel(panel.unit)
            axes.set_xlabel("concurrency (live sessions)")
            axes.set_xticks(sorted(set(table["concurrency"])))
            axes.set_ylim(bottom=0)
            if axes.get_legend_handles_labels()[0]:
                axes.legend(fontsize=8)


def _lines(axes: Axes, panel: Panel, own: pd.DataFrame, style: str, label: str) -> None:
    for colour, (name, column) in zip(COLOURS, panel.columns.items(), strict=False):
        known = own.dropna(subset=[column])
        if known.empty:
            continue
        mean = known.groupby("concurrency")[column].mean()
        axes.plot(mean.index, mean, linestyle=style, color=colour, label=f"{name}{label}")
        axes.plot(known["concurrency"], known[column], "o", color=colour, markersize=4)


def _published(axes: Axes, panel: Panel, published: list[Published]) -> None:
    for colour, (name, column) in zip(COLOURS, panel.columns.items(), strict=False):
        values = [value for entry in published for value in entry.values if value.metric == column]
        if values:
            axes.plot(
                [value.concurrency for value in values],
                [value.value for value in values],
                "D",
                markersize=8,
                markerfacecolor="none",
                color=colour,
                label=f"{name}, published",
            )
