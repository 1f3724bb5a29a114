"""A report of made numbers: as many points and runs as wanted, with evaluations or without."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pandas as pd

from serve_repro.client.series import Series
from serve_repro.draw import concurrency, course, interactivity
from serve_repro.recipe.load import parse
from serve_repro.recipe.published import Published
from serve_repro.result_paths import Run, replay_path
from serve_repro.table.report import SHOWN, Evaluations, render
from serve_repro.table.verdict import verdicts

PUBLISHED: dict[str, Any] = {
    "name": "theirs",
    "title": "What they printed",
    "url": "https://example.org/1",
    "commit": None,
    "recipe": "big",
    "note": "A note.",
    "conditions": {"gpus": 16},
    "bands": {"reproduced_percent": 5, "close_percent": 10},
    "values": [
        {"concurrency": 16, "metric": "total_tput_tok_s_gpu", "value": 2000},
        {"concurrency": 20, "metric": "ttft_p50_ms", "value": 1000},
        {"concurrency": 24, "metric": "ttft_p50_ms", "value": 1000},
    ],
}
WOBBLE = (1.0, 0.985, 1.02)
"""What each run of a point has of the point's numbers."""
GATES = [{"gate": "window", "outcome": "pass", "seen": "1800 s <of> 1800"}]
IDENTITY = {"plan": "sha256:ab"}
RUNNING = {"vllm:num_requests_running": Series([0.5, 1.5], [1.0, 2.0])}


def point(level: int, run: int) -> dict[str, Any]:
    """One row of the summary; every column that the page shows or the pictures draw has a number."""
    columns = {column for panel in concurrency.PANELS for column in panel.columns.values()}
    wobble = WOBBLE[run - 1]
    return (
        dict.fromkeys([*SHOWN, *columns], 0.5)
        | {f"ttft_{name}_ms": 75.0 * level * scale * wobble for name, scale in _TAILS}
        | {f"itl_{name}_ms": (10 + level) * scale * wobble for name, scale in _TAILS}
        | {f"e2e_{name}_ms": 900.0 * (10 + level) * scale * wobble for name, scale in _TAILS}
        | {"recipe": "big", "site": "there", "validity": "submission", "status": "valid"}
        | {"gpus": 16, "accelerator": "mi355x", "concurrency": level, "repeat": run}
        | {"requests": 90 * level + run, "prefix_cache_hit_ratio": 0.94, "acceptance_length_tok": 2.51}
        | {"total_tput_tok_s_gpu": round(5000 * level / (level + 24) * wobble, 5)}
        | {"output_tput_tok_s_gpu": round(40 * level / (level + 24) * wobble, 5)}
        | {"interactivity_p50_tok_s_user": 1000 / (10 + level) / wobble}
        | {"reused_from": "elsewhere:0123456789ab" if (level, run) == (20, 2) else None}
    )


_TAILS = (("p50", 1.0), ("p90", 2.1), ("p99", 4.7))


def evaluation(recipe: str, lowest: float) -> dict[str, Any]:
    """One row of evals.csv, with a threshold of 0.9."""
    failed = lowest < 0.9
    return {
        "recipe": recipe,
        "task": "gsm8k",
        "validity": "submission",
        "outcome": "failed" if failed else "passed",
        "reason": f"exact_match strict-match {lowest:g} is below 0.9" if failed else "",
        "items": 1319,
        "few_shot": 5,
        "exact_match_flexible_extract": 0.97,
        "exact_match_strict_match": lowest,
        "threshold": 0.9,
    }


def make_report(
    folder: Path, levels: tuple[int, ...], repeats: int, evaluated: list[dict[str, Any]]
) -> Path:
    """Draw and write all of it; returns the page."""
    runs = [(level, run) for level in levels for run in range(1, repeats + 1)]
    table, published = pd.DataFrame([point(*run) for run in runs]), [parse(PUBLISHED, Published, "here")]
    plots = [folder / "interactivity.svg", folder / "concurrency.svg"]
    interactivity.draw(table, published, plots[0])
    concurrency.draw(table, published, plots[1])
    points = {}
    for level, run in runs:
        replay = folder / replay_path(Run("big", level, run))
        told = {"recipe": "big", "concurrency": level, "gates": GATES, "identity": IDENTITY}
        _write(replay, told)
        points[replay] = replay.with_name("course.svg")
        course.draw(f"big, concurrency {level}, run {run}", RUNNING, points[replay])
    results = [folder / f"results/{row['recipe']}/eval/gsm8k/eval.json" for row in evaluated]
    for path, row in zip(results, evaluated, strict=True):
        _write(path, {"recipe": row["recipe"], "gates": GATES, "identity": IDENTITY})
    evaluations = Evaluations([pd.DataFrame(evaluated)] if evaluated else [], results)
    # Through text, as the program reads it.
    verdict = verdicts(table, published, repeats).to_csv(index=False)
    compared = pd.read_csv(io.StringIO(verdict), dtype={"n": "Int64"})
    html = folder / "report.html"
    page = render(table, compared, published, plots, points, evaluations)
    html.write_text(page, encoding="utf-8")
    return html


def _write(path: Path, document: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document), encoding="utf-8")
