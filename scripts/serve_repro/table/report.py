"""One self-contained HTML page: what was measured, whether it may be believed, where it lies."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
import pandas as pd

from serve_repro.documents import read_json
from serve_repro.recipe.published import Published
from serve_repro.result_paths import repeat_of
from serve_repro.table.evals import METRIC

SHOWN = {
    "concurrency": "conc",
    "status": "status",
    "validity": "class",
    "requests": "requests",
    "total_tput_tok_s_gpu": "total tok/s/GPU",
    "output_tput_tok_s_gpu": "output tok/s/GPU",
    "interactivity_p50_tok_s_user": "interactivity p50 tok/s/user",
    "ttft_p50_ms": "TTFT p50 ms",
    "ttft_p99_ms": "TTFT p99 ms",
    "itl_p50_ms": "ITL p50 ms",
    "e2e_p50_ms": "E2E p50 ms",
    "prefix_cache_hit_ratio": "prefix cache hits",
    "acceptance_length_tok": "acceptance length",
    "reused_from": "reused from",
}
"""Columns of the page's table and their headings."""
SAME = ("concurrency", "validity")
"""Those of them that are the same in all runs of a point; of the others the mean is told."""


class Evaluations(NamedTuple):
    """The accuracy evaluations that the page tells of; most recipes have none."""

    tables: list[pd.DataFrame] = []
    """evals.csv, if there is one."""
    results: list[Path] = []
    """Each eval.json, for its gates."""


def render(
    table: pd.DataFrame,
    verdict: pd.DataFrame,
    published: list[Published],
    plots: list[Path],
    points: dict[Path, Path],
    evaluations: Evaluations,
) -> str:
    """The page as text.

    Args:
        table: summary.csv.
        verdict: verdict.csv.
        published: the publications that it compares with, for their sources and notes.
        plots: SVGs of the whole table.
        points: each point's replay.json, for its gates, and the SVG of its course.
        evaluations: without any, nothing is said of accuracy.
    """
    evals = [row for rows in evaluations.tables for _, row in rows.iterrows()]
    repeated = bool((table["repeat"] > 1).any())
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html.j2").render(
        recipes=[_recipe(name, rows) for name, rows in table.groupby("recipe", sort=False)],
        publications=[_publication(entry, verdict) for entry in published],
        plots=[_picture(plot) for plot in plots],
        accuracy=_accuracy(evals),
        evaluations=[
            read_json(path) | {"title": f"accuracy, {path.parent.name}"} for path in evaluations.results
        ],
        points=[
            read_json(path) | {"title": _title(path, repeated), "course": _picture(course)}
            for path, course in points.items()
        ],
    )


def _title(replay: Path, repeated: bool) -> str:
    concurrency = f"concurrency {read_json(replay)['concurrency']}"
    return f"{concurrency}, run {repeat_of(replay)}" if repeated else concurrency


def _picture(svg: Path) -> str:
    """As an address that holds the data: several SVGs in one page would share ids."""
    return "data:image/svg+xml;base64," + base64.b64encode(svg.read_bytes()).decode("ascii")


def _publication(entry: Published, verdict: pd.DataFrame) -> dict[str, Any]:
    own = verdict[verdict["publication"] == entry.name]
    counts = own["verdict"].value_counts()
    reproduced = int(counts.get("reproduced", 0))
    return {
        "title": entry.title,
        "url": entry.url,
        "note": entry.note,
        "headline": f"{reproduced} of {len(own)} published values reproduced",
        "others": [f"{count} {name}" for name, count in counts.items() if name != "reproduced"],
        "reasons": [
            f"{name}: {'; '.join(rows['metric'] + ' at ' + rows['concurrency'].astype(str))} ({why})"
            for (name, why), rows in own[own["verdict"] != "reproduced"].groupby(["verdict", "why"])
        ],
        "rows": [
            {column: _cell(row[column]) for column in own.columns}
            | {"class": str(row["verdict"]).replace(" ", "-")}
            for _, row in own.iterrows()
        ],
    }


def _recipe(name: object, rows: pd.DataFrame) -> dict[str, Any]:
    shown = [column for column in SHOWN if rows[column].notna().any()]
    headings = [SHOWN[column] for column in shown]
    points = rows.groupby("concurrency", sort=False)
    repeated = len(rows) > len(points)
    if repeated:
        told = {
            "headings": ["runs" if name == "status" else name for name in headings],
            "rows": [_means(shown, runs) for _, runs in points],
        }
        headings = [headings[0], "run", *headings[1:]]
        shown = [shown[0], "repeat", *shown[1:]]
    each = {
        "headings": headings,
        "rows": [[(_cell(row[column]), "") for column in shown] for _, row in rows.iterrows()],
    }
    return {
        "name": name,
        "site": rows["site"].iloc[0],
        "smoke": bool((rows["validity"] == "smoke").any()),
        "points": len(points),
        "repeated": repeated,
        "table": told if repeated else each,
        "each": each if repeated else None,
    }


def _means(shown: list[str], runs: pd.DataFrame) -> list[tuple[str, str]]:
    """One point's cells: the mean over its runs, and under it how far they spread."""
    cells = []
    for column in shown:
        known = runs[column].dropna()
        if column == "status":
            cells.append((str(len(runs)), ""))
        elif column == "reused_from":
            cells.append((f"{len(known)} of {len(runs)} runs" if len(known) else "", ""))
        elif column in SAME:
            cells.append(("/".join(sorted({_cell(value) for value in known})), ""))
        else:
            few = f"{len(known)} of {len(runs)} runs" if len(known) < len(runs) else ""
            mean = float(known.mean()) if len(known) else float("nan")
            spread = f"CV {100 * known.std() / mean:.1f} %" if len(known) > 1 and mean else ""
            cells.append((_cell(mean), ", ".join(filter(None, (spread, few)))))
    return cells


def _accuracy(evals: list[pd.Series[Any]]) -> dict[str, Any] | None:
    """A row a score of evals.csv, and what became of the evaluations in one sentence."""
    if not evals:
        return None
    failed = [row for row in evals if row["outcome"] != "passed"]
    rows = [
        {
            "cells": {
                "recipe": row["recipe"],
                "task": row["task"],
                "metric": name.replace("_", " "),
                "value": f"{row[name]:.4f}",
                "threshold": f"{row['threshold']:g}",
                "questions": str(row["items"]),
                "examples": str(row["few_shot"]),
                "class": row["validity"],
            },
            "outcome": "failed" if row[name] < row["threshold"] else "passed",
        }
        for row in evals
        for name in row.index
        if name.startswith(METRIC) and pd.notna(row[name])
    ]
    return {
        "headline": f"{len(evals) - len(failed)} of {len(evals)} accuracy evaluations passed"
        + (f"; {len(failed)} failed" if failed else ""),
        "failed": bool(failed),
        "reasons": [f"{row['recipe']}, {row['task']}: {row['reason']}" for row in failed],
        "smoke": any(row["validity"] == "smoke" for row in evals),
        "rows": rows,
    }


def _cell(value: Any) -> str:
    if pd.isna(value):
        return ""
    if isinstance(value, float):
        return f"{value:,.2f}" if abs(value) < 100 else f"{value:,.0f}"
    return value if isinstance(value, str) else json.dumps(int(value))
