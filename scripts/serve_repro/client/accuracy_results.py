"""What lm-eval exports: scores, settings, and one record an answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from serve_repro.documents import read_json
from serve_repro.errors import UserError


class Answers(NamedTuple):
    """One evaluation, as the client tells it."""

    scores: dict[str, float]
    """exact_match by filter."""
    few_shot: int
    items: int
    """Answers with a record."""
    distinct: int
    """Different questions among them."""
    empty: int
    """Answers without a text."""


def read_answers(artifacts: Path, task: str) -> Answers:
    """Read the export of one evaluation.

    Raises:
        UserError: none or several exports, or one that is damaged.
    """
    export = read_json(_only(artifacts, "results_*.json"))
    records = _only(artifacts, f"samples_{task}_*.jsonl").read_text(encoding="utf-8").splitlines()
    # A question has one record a filter.
    texts: dict[int, str] = {}
    questions: set[str] = set()
    for record in map(json.loads, records):
        texts[record["doc_id"]] = record["resps"][0][0]
        questions.add(record["doc"]["question"])
    return Answers(
        scores=exact_matches(export["results"][task]),
        few_shot=export["n-shot"][task],
        items=len(texts),
        distinct=len(questions),
        empty=sum(not text.strip() for text in texts.values()),
    )


def exact_matches(results: dict[str, Any]) -> dict[str, float]:
    """{filter: exact_match} of a task's results."""
    return {
        name.partition(",")[2]: float(value)
        for name, value in sorted(results.items())
        if name.startswith("exact_match,")
    }


def _only(folder: Path, pattern: str) -> Path:
    found = sorted(folder.rglob(pattern))
    if len(found) != 1:
        raise UserError(
            "the evaluation's export is not there, or not alone",
            where=str(folder),
            expected=f"one {pattern}",
            found=[path.name for path in found],
        )
    return found[0]
