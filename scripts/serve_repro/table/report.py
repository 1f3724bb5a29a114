"""One self-contained HTML page: what was measured, whether it may be believed, where it lies."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd

from serve_repro.documents import read_json
from serve_repro.recipe.published import Published

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


def render(
    table: pd.DataFrame,
    verdict: pd.DataFrame,
    published: list[Published],
    plots: list[Path],
    points: dict[Path, Path],
) -> str:
    """The page as text.

    Args:
        table: summary.csv.
        verdict: verdict.csv.
        published: the publications that it compares with, for their sources and notes.
        plots: SVGs of the whole table.
        points: each point's replay.json, for its gates, and the SVG of its course.
    """
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
        points=[read_json(path) | {"course": _picture(course)} for path, course in points.items()],
    )


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
        "reasons": sorted({str(why) for why in own.loc[own["verdict"] != "reproduced", "why"]}),
        "rows": [
            {column: _cell(row[column]) for column in own.columns}
            | {"class": str(row["verdict"]).replace(" ", "-")}
            for _, row in own.iterrows()
        ],
    }


def _recipe(name: object, rows: pd.DataFrame) -> dict[str, Any]:
    shown = [column for column in SHOWN if rows[column].notna().any()]
    return {
        "name": name,
        "site": rows["site"].iloc[0],
        "smoke": bool((rows["validity"] == "smoke").any()),
        "headings": [SHOWN[column] for column in shown],
        "rows": [[_cell(row[column]) for column in shown] for _, row in rows.iterrows()],
    }


def _cell(value: Any) -> str:
    if pd.isna(value):
        return ""
    if isinstance(value, float):
        return f"{value:,.2f}" if abs(value) < 100 else f"{value:,.0f}"
    return value if isinstance(value, str) else json.dumps(int(value))
