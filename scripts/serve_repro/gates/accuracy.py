"""Gates of an accuracy evaluation: what was asked, of which server, and that it was scored."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from serve_repro.client.accuracy_results import Answers, read_answers
from serve_repro.client.server_metrics import grown, read_counters
from serve_repro.documents import read_json
from serve_repro.gates.checks import ACCEPTED, DRAFTS, SERVING_GATES, rank_logs
from serve_repro.gates.evidence import Serving, collect_serving
from serve_repro.gates.result import Result, result
from serve_repro.plan.model import EvaluationPlan


class AccuracyEvidence(NamedTuple):
    """One evaluation's artifacts."""

    answers: Answers
    before: dict[str, float]
    """Server counters before the client started."""
    after: dict[str, float]
    """Server counters after it ended; none if /metrics did not answer then."""
    rejections: list[str | None]
    """By rank: how drafts are accepted, from the command line that was started."""
    serving: Serving


def collect(plan: EvaluationPlan, attempt: Path, patch_folder: Path) -> AccuracyEvidence:
    """Read an attempt's folder.

    Raises:
        FileNotFoundError, UserError: an artifact is missing or damaged.
    """
    before, after = attempt / "metrics_before.txt", attempt / "metrics_after.txt"
    latest = after if after.is_file() else before
    return AccuracyEvidence(
        answers=read_answers(attempt / "client" / "artifacts", f"served_{plan.accuracy.task}"),
        before=read_counters(before),
        after=read_counters(after) if after.is_file() else {},
        rejections=[
            rejection_of(read_json(attempt / f"rank{rank.rank}" / "started.json")["argv"])
            for rank in plan.ranks
        ],
        serving=collect_serving(attempt, len(plan.ranks), patch_folder, latest),
    )


def rejection_of(argv: list[str]) -> str | None:
    """How a started server accepts drafts; None if it was not told to speculate."""
    if "--speculative-config" not in argv:
        return None
    config = json.loads(argv[argv.index("--speculative-config") + 1])
    return str(config.get("rejection_sample_method", "standard"))


def answered(plan: EvaluationPlan, evidence: AccuracyEvidence) -> Result:
    """Every planned question has an answer, with as many examples as planned; some have a text."""
    found, wanted = evidence.answers, plan.accuracy
    good = (
        found.items == found.distinct == wanted.items
        and found.few_shot == wanted.few_shot
        and found.empty < found.items
    )
    return result(
        "answered",
        good,
        f"{found.items} answers to {found.distinct} questions (planned {wanted.items}), "
        f"{found.empty} without a text, {found.few_shot} examples (planned {wanted.few_shot})",
    )


def requests(plan: EvaluationPlan, evidence: AccuracyEvidence) -> Result:
    """This server finished one request an item: no other answered, none was asked twice."""
    finished = grown(evidence.before, evidence.after, "vllm:request_success_total")
    if finished is None:
        return result("requests", None, "the server has no vllm:request_success_total")
    seen = f"the server finished {finished:.0f} requests for {plan.accuracy.items} items"
    return result("requests", finished == plan.accuracy.items, seen)


def rejection(plan: EvaluationPlan, evidence: AccuracyEvidence) -> Result:
    """Every rank was started with the planned rejection, never with a set acceptance rate."""
    wanted = plan.accuracy.rejection
    good = all(found == wanted for found in evidence.rejections)
    return result("rejection", good, f"started with {evidence.rejections}, planned {wanted}")


def drafted(plan: EvaluationPlan, evidence: AccuracyEvidence) -> Result:
    """Answers were drafted exactly if the recipe speculates; at which length is for the model to say."""
    drafts, accepted = (grown(evidence.before, evidence.after, name) for name in (DRAFTS, ACCEPTED))
    if plan.expect.speculation is None:
        return result("drafted", not drafts, "no speculation planned")
    if drafts is None or accepted is None:
        return result("drafted", None, f"the server has no {DRAFTS} or no {ACCEPTED}")
    length = 1 + accepted / max(drafts, 1)
    return result("drafted", drafts > 0, f"acceptance length {length:.3f} in {drafts:.0f} drafts")


def scored(plan: EvaluationPlan, evidence: AccuracyEvidence) -> Result:
    """The answers have a score. Which one is the result, not whether the evaluation is valid."""
    scores = evidence.answers.scores
    if not scores:
        return result("scored", None, "the client exports no exact_match")
    told = ", ".join(f"{name} {value:.4f}" for name, value in scores.items())
    return result("scored", True, f"exact_match {told}; threshold {plan.accuracy.threshold:g}")


GATES = (answered, requests, rejection, drafted, scored)
"""Gates of its own, told before those that every server must pass."""


def judge(plan: EvaluationPlan, evidence: AccuracyEvidence) -> list[Result]:
    """Every gate's result."""
    own = [gate(plan, evidence) for gate in GATES]
    serving = [gate(plan, evidence.serving) for gate in SERVING_GATES]
    return [*own, *serving, rank_logs(plan, evidence.serving)]
