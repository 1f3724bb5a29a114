"""Accuracy evaluations: a server without set acceptance rates, and gates on what it answered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from serve_repro.client import accuracy_task
from serve_repro.client.accuracy_results import Answers, read_answers
from serve_repro.documents import write_json
from serve_repro.errors import UserError
from serve_repro.gates.accuracy import GATES, AccuracyEvidence, rejection_of
from serve_repro.gates.evidence import Serving
from serve_repro.items import make_items
from serve_repro.plan.evaluation import make_evaluation_plan
from serve_repro.plan.model import EvaluationPlan, read_evaluation
from serve_repro.recipe.load import load
from serve_repro.recipe.recipe import Recipe
from serve_repro.recipe.site import Site
from serve_repro.table.evals import row

from .attempts import write_evaluation
from .plans import plan_of

BASE = Path(__file__).parents[2]
SITE = load(BASE / "config/sites/laptop.yaml", Site)
RECIPE = load(BASE / "config/recipes/tiny-cpu-spec.yaml", Recipe)
PLAN = make_evaluation_plan(RECIPE, SITE)
SERVING = Serving(None, None, {}, set(), {}, [], [], [])
FINISHED = "vllm:request_success_total"
DRAFTS, ACCEPTED = "vllm:spec_decode_num_drafts_total", "vllm:spec_decode_num_accepted_tokens_total"
GOOD = AccuracyEvidence(
    answers=Answers({"strict-match": 0.5}, few_shot=2, items=8, distinct=8, empty=0),
    before={FINISHED: 1, DRAFTS: 10, ACCEPTED: 5},
    after={FINISHED: 9, DRAFTS: 90, ACCEPTED: 45},
    rejections=["block"],
    serving=SERVING,
)


def outcomes(evidence: AccuracyEvidence, plan: EvaluationPlan = PLAN) -> dict[str, str]:
    """{gate: outcome} of those that are no pass."""
    results = [gate(plan, evidence) for gate in GATES]
    return {found.gate: found.outcome for found in results if found.outcome != "pass"}


def test_only_how_drafts_are_accepted_differs_from_a_points_server() -> None:
    point = plan_of("tiny-cpu-spec", "laptop", 2)
    (asked,), (served,) = ([rank.start.argv for rank in plan.ranks] for plan in (PLAN, point))
    where = asked.index("--speculative-config") + 1
    block, synthetic = json.loads(asked[where]), json.loads(served[where])
    assert block.pop("rejection_sample_method") == "block"
    assert synthetic.pop("rejection_sample_method") == "synthetic"
    assert synthetic.pop("synthetic_acceptance_length") == 2.51
    assert block == synthetic
    assert [*asked[:where], *asked[where + 1 :]] == [*served[:where], *served[where + 1 :]]
    assert PLAN.ranks[0].start.env == point.ranks[0].start.env
    assert PLAN.expect.acceptance_length is None


def test_its_plan_survives_its_file_and_is_no_points_plan(tmp_path: Path) -> None:
    write_json(tmp_path / "plan.json", PLAN.model_dump(mode="json"))
    assert read_evaluation(tmp_path / "plan.json") == PLAN
    assert PLAN.digest() != plan_of("tiny-cpu-spec", "laptop", 2).digest()


def test_a_recipe_without_the_section_is_refused() -> None:
    with pytest.raises(UserError, match=r"tiny-cpu-spec\.yaml: eval"):
        make_evaluation_plan(RECIPE.model_copy(update={"eval": None}), SITE)


def test_what_is_right_passes() -> None:
    assert outcomes(GOOD) == {}


@pytest.mark.parametrize(
    ("change", "gates"),
    [
        ({"rejections": ["synthetic"]}, {"rejection": "fail"}),
        ({"rejections": [None]}, {"rejection": "fail"}),
        ({"after": GOOD.after | {FINISHED: 10}}, {"requests": "fail"}),
        ({"after": GOOD.after | {DRAFTS: 10}}, {"drafted": "fail"}),
        ({"after": {}}, {"requests": "unknown", "drafted": "unknown"}),
        ({"answers": GOOD.answers._replace(scores={})}, {"scored": "unknown"}),
        ({"answers": GOOD.answers._replace(items=7)}, {"answered": "fail"}),
        ({"answers": GOOD.answers._replace(distinct=7)}, {"answered": "fail"}),
        ({"answers": GOOD.answers._replace(few_shot=0)}, {"answered": "fail"}),
        ({"answers": GOOD.answers._replace(empty=8)}, {"answered": "fail"}),
    ],
    ids=str,
)
def test_each_fault_has_its_gate(change: dict[str, Any], gates: dict[str, str]) -> None:
    assert outcomes(GOOD._replace(**change)) == gates


@pytest.mark.parametrize(
    ("lowest", "outcome", "reason"),
    [(0.9, "passed", ""), (0.8999, "failed", "exact_match strict-match 0.8999 is below 0.9")],
)
def test_every_score_must_reach_the_threshold(
    tmp_path: Path, lowest: float, outcome: str, reason: str
) -> None:
    told = row(write_evaluation(tmp_path / "results", lowest))
    assert (told["outcome"], told["reason"]) == (outcome, reason)
    assert (told["status"], told["gates_passed"], told["gates_total"]) == ("valid", 1, 1)
    assert told["exact_match_strict_match"] == lowest


def test_a_score_below_the_threshold_is_a_result_and_not_an_invalid_run() -> None:
    plan = PLAN.model_copy(update={"accuracy": PLAN.accuracy.model_copy(update={"threshold": 0.9})})
    assert outcomes(GOOD, plan) == {}


def test_a_server_that_was_not_told_how_accepts_in_vllms_default_way() -> None:
    assert rejection_of(["vllm", "serve"]) is None
    assert rejection_of(["--speculative-config", '{"method": "ngram"}']) == "standard"


def test_made_items_are_the_same_from_the_same_seed_and_never_twice() -> None:
    made = make_items(50, 2)
    assert made == make_items(50, 2) != make_items(50, 3)
    questions = [record["question"] for records in made.values() for record in records]
    assert len(set(questions)) == 100
    for record in made["test"]:
        total, _, answer = record["answer"].partition("\n#### ")
        assert total.endswith(f"= {answer}")


def test_fetched_items_are_read_from_the_snapshot_that_came() -> None:
    manifest = {"folder": "/hub", "repository": "openai/gsm8k", "revision": "abc"}
    kind, files = accuracy_task.data_files(manifest)
    assert kind == "parquet"
    assert files["test"] == "/hub/datasets--openai--gsm8k/snapshots/abc/main/test-*.parquet"


def test_an_export_is_read_once_a_question(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    results = {"alias": "x", "exact_match,strict-match": 0.5, "exact_match_stderr,strict-match": 0.1}
    write_json(folder / "results_1.json", {"results": {"t": results}, "n-shot": {"t": 2}})
    rows = [
        {"doc_id": item, "doc": {"question": f"q{item}"}, "resps": [[text]], "filter": name}
        for name in ("strict-match", "flexible-extract")
        for item, text in enumerate(["#### 4", " "])
    ]
    (folder / "samples_t_1.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert read_answers(tmp_path, "t") == Answers({"strict-match": 0.5}, 2, 2, 2, 1)
    write_json(folder / "results_2.json", {})
    with pytest.raises(UserError, match="not there, or not alone"):
        read_answers(tmp_path, "t")
