"""The plan of an accuracy evaluation: a point's server, which accepts only drafts that are right."""

from __future__ import annotations

import math

from serve_repro.command import Command
from serve_repro.errors import UserError
from serve_repro.plan import model
from serve_repro.plan.build import make_plan, used_bindings
from serve_repro.recipe.evaluation import Evaluation
from serve_repro.recipe.recipe import Recipe
from serve_repro.recipe.site import Site

REJECTION = "block"
"""Lossless. At a set rate wrong drafts get in: the publication's GSM8K once fell to 0.35 by that."""


def make_evaluation_plan(recipe: Recipe, site: Site) -> model.EvaluationPlan:
    """What an evaluation of a recipe will do, without doing any of it.

    Raises:
        UserError: the recipe has no section `eval`, or does not fit the site.
    """
    chosen = recipe.eval
    if chosen is None:
        raise UserError(
            "the recipe has no accuracy evaluation",
            where=f"config/recipes/{recipe.name}.yaml: eval",
            remedy="add the section eval",
        )
    served = recipe.model_copy(
        update={"speculation": lossless(recipe), "concurrencies": [chosen.concurrency]}
    )
    plan = make_plan(served, site, chosen.concurrency)
    client = _client(recipe, chosen)
    deadlines = recipe.deadlines
    seconds = deadlines.boot_limit_s + deadlines.first_tokens_s + client.limit_s + 2 * deadlines.stop_s
    reasons = ["the items are made, not published"] if chosen.dataset.made else []
    return model.EvaluationPlan(
        **{name: getattr(plan, name) for name in model.Plan.model_fields}
        | {
            "client": client,
            "bindings": used_bindings(plan.ranks, client),
            "request": plan.request.model_copy(update={"runtime_min": math.ceil(seconds / 60)}),
            "expect": plan.expect.model_copy(
                update={
                    "max_error_ratio": 0.0,
                    "validity": "smoke" if reasons else "submission",
                    "validity_reasons": reasons,
                }
            ),
        },
        accuracy=model.AccuracyPlan(
            task=chosen.task,
            items=chosen.items,
            few_shot=chosen.few_shot,
            max_tokens=chosen.max_tokens,
            threshold=chosen.threshold,
            rejection=REJECTION if recipe.speculation else None,
        ),
    )


def lossless(recipe: Recipe) -> object:
    """The recipe's speculation with block rejection; None if it has none."""
    if recipe.speculation is None:
        return None
    return recipe.speculation.model_copy(update={"rejection": REJECTION, "acceptance_length": None})


def _client(recipe: Recipe, chosen: Evaluation) -> model.ClientPlan:
    settings = {
        "base_url": "http://127.0.0.1:${API_PORT}/v1/chat/completions",
        "model": recipe.model.served_name,
        "num_concurrent": chosen.concurrency,
        "max_retries": 1,  # a request that fails is told, not tried until it works
        "timeout": math.ceil(chosen.limit_s),
    }
    argv = [
        *["${EVAL_PYTHON}", "-m", "lm_eval", "run"],
        *["--model", "local-chat-completions"],
        *["--model_args", ",".join(f"{name}={value}" for name, value in settings.items())],
        *["--tasks", f"served_{chosen.task}"],
        *["--include_path", "${TASK_DIR}"],
        *["--num_fewshot", str(chosen.few_shot)],
        *["--limit", str(chosen.items)],
        "--apply_chat_template",
        *["--seed", "42"],
        "--log_samples",
        *["--output_path", "${RUN_DIR}/client/artifacts"],
    ]
    env = {
        "SERVE_REPRO_RUN_ID": "${RUN_ID}",
        "SERVE_REPRO_RANK": "client",
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "HF_HOME": "${SCRATCH}/huggingface",
        "TMPDIR": "${SCRATCH}",
        "HOME": "${SCRATCH}",
    }
    return model.ClientPlan(
        command=Command(argv=argv, env=env),
        tokenizer=recipe.model.id,
        hub_traces=False,
        duration_s=0,
        idle_gap_s=0,
        lane_gap_s=0,
        limit_s=chosen.limit_s,
    )
