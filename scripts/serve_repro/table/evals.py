"""evals.csv: one row an accuracy evaluation, from the artifacts of its attempt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from serve_repro.client.accuracy_results import read_answers
from serve_repro.documents import read_json
from serve_repro.source import short
from serve_repro.table.rows import IDENTITY

METRIC = "exact_match_"
"""How the columns of scores begin; what follows is lm-eval's filter."""


def table(evals: list[Path]) -> pd.DataFrame:
    """All rows, in the order of the evaluations."""
    return pd.DataFrame([row(path) for path in evals])


def row(path: Path) -> dict[str, Any]:
    """One evaluation's row. It passed if every score reaches the recipe's threshold.

    Args:
        path: its eval.json, in results/<recipe>/eval/<task>/.
    """
    done = read_json(path)
    attempt, task = path.parent / done["attempt"], path.parent.name
    accuracy = read_json(path.parent / "plan.json")["accuracy"]
    answers = read_answers(attempt / "client" / "artifacts", f"served_{task}")
    scores = {f"{METRIC}{name.replace('-', '_')}": value for name, value in answers.scores.items()}
    threshold = accuracy["threshold"]
    low = [
        f"exact_match {name} {value:.6g} is below {threshold:g}"
        for name, value in answers.scores.items()
        if value < threshold
    ]
    outcomes = [gate["outcome"] for gate in done["gates"]]
    return {
        "recipe": done["recipe"],
        "site": done["site"],
        "task": task,
        "status": done["status"],
        "validity": done["validity"],
        "outcome": "failed" if low else "passed",
        "reason": ", ".join(low),
        "items": answers.items,
        "few_shot": answers.few_shot,
        **scores,
        "threshold": threshold,
        "rejection": accuracy["rejection"],
        "gates_passed": outcomes.count("pass"),
        "gates_total": len(outcomes),
        "started": done["started"],
        **{f"{name}_id": str(done["identity"][name]).removeprefix("sha256:")[:12] for name in IDENTITY},
        "workflow_commit": short(done.get("workflow")),
        "attempt": str(attempt),
    }
