"""Check settings, recipes and site before anything starts; names that all rules share."""

import json
import os
import re
import sys
from datetime import UTC, date, datetime
from pathlib import Path

from snakemake.exceptions import WorkflowError
from snakemake.logging import logger

SCRIPTS = Path(workflow.basedir) / "scripts"
sys.path.insert(0, str(SCRIPTS))

from serve_repro.driver import VERSION as DRIVER_VERSION
from serve_repro.errors import UserError
from serve_repro.imports import sources
from serve_repro.interpreter import put_own_python_first
from serve_repro.messages import made_what, what_failed
from serve_repro.point.lock import let_launchers_end
from serve_repro.result_paths import REPEAT, run_of
from serve_repro.reuse.decide import decide
from serve_repro.reuse.identity import identities_here
from serve_repro.reuse.source import results_of
from serve_repro.sweep import Sweep

put_own_python_first()

try:
    SWEEP = Sweep(config, Path(workflow.basedir))
except UserError as error:
    raise WorkflowError(str(error))

for told in SWEEP.overdue(date.today()):
    logger.warning(told)

if workflow.output_settings.dryrun:
    print(*SWEEP.previews(), sep="\n")


wildcard_constraints:
    recipe="[a-z0-9][a-z0-9.-]*",
    concurrency="[0-9]+",
    repeat=REPEAT,
    node="[A-Za-z0-9][A-Za-z0-9.-]*",
    environment="[a-z0-9][a-z0-9.-]*",
    model=r"[\w.-]+",
    dataset="[a-z0-9][a-z0-9.-]*",
    task="[a-z0-9]+",


def write_partial(points):
    """Write results/summary.partial.csv; pandas is not imported before it is needed."""
    from serve_repro.table import partial

    partial.write_partial(points)


def program_files(name):
    """A program and all of ours that it imports, for rules whose result an edit can change."""
    return [os.path.relpath(path) for path in sources(SCRIPTS / name)]


def course_of(point):
    """The picture of a point's course, by its replay.json."""
    return f"results/plots/{Path(point).parent.relative_to('results')}.svg"


def aggregate_of(point):
    """InferenceX's aggregate of a point, by its replay.json."""
    return str(Path(point).with_name("inferencex.json"))


def inferencex_labels(wildcards):
    """What InferenceX's aggregate says of a point that no measurement tells, as JSON."""
    return json.dumps(
        SWEEP.inferencex_labels(wildcards.recipe, wildcards.concurrency), sort_keys=True
    )


def serving_nodes(recipe):
    """The nodes that a recipe serves on; where they are chosen, its jobs wait for the choice."""
    if SWEEP.site.nodes is None:
        checkpoints.select_nodes.get(recipe=recipe)
    return SWEEP.nodes(recipe)


def per_node(pattern):
    """An input function: one file for each node that the recipe serves on."""
    return lambda wildcards: expand(
        pattern, node=serving_nodes(wildcards.recipe), allow_missing=True
    )


def first_image(wildcards):
    """The image's receipt of the first of a recipe's nodes."""
    first = serving_nodes(wildcards.recipe)[0]
    return f"results/{wildcards.recipe}/image/nodes/{first}.json"


def first_node(wildcards):
    """The first of a recipe's nodes; an empty word before they are chosen."""
    return next(iter(SWEEP.nodes(wildcards.recipe)), "")


def for_point(key):
    """A resource of the job that measures a point."""
    return lambda wildcards: SWEEP.point_resources(
        wildcards.recipe, wildcards.concurrency
    )[key]


def for_evaluation(key):
    """A resource of the job that evaluates a recipe."""
    return lambda wildcards: SWEEP.evaluation_resources(wildcards.recipe)[key]


def for_step(key):
    """A resource of a job that proves one node."""
    return lambda wildcards: SWEEP.step_resources(wildcards.node)[key]


def for_first_node(key):
    """A resource of a job that runs on the first of a recipe's nodes."""
    return lambda wildcards: SWEEP.step_resources(first_node(wildcards))[key]


def originals(wildcards):
    """What was taken from the image, for recipes whose patches start from its files."""
    return (
        f"results/{wildcards.recipe}/patches/originals.json"
        if SWEEP.starts_from_image(wildcards.recipe)
        else []
    )


def merged_table(wildcards):
    """The merged tuned GEMM table, for recipes that bring rows for it."""
    return (
        f"results/{wildcards.recipe}/patches/gemm/bf16_tuned_gemm.csv"
        if SWEEP.tables(wildcards.recipe)
        else []
    )


def first_receipt(wildcards):
    """The receipt of the node that hashes shared weights for all; nothing for that node itself."""
    first = SWEEP.first_node(wildcards.recipe)
    if first in (None, wildcards.node):
        return []
    return f"results/{wildcards.recipe}/weights/nodes/{first}.json"


def made_model_files(wildcards):
    """The files of the models that a recipe makes on the spot."""
    return [
        f"resources/made/models/{model.name}/config.json"
        for model in SWEEP.models(wildcards.recipe)
        if model.made is not None
    ]


def environment_file(wildcards):
    """The proof of the environment that serves, where there is no container."""
    environment = SWEEP.recipes[wildcards.recipe].image.environment
    return (
        f".envs/{environment}/environment.json"
        if SWEEP.site.runtime == "process"
        else []
    )


def dataset_manifest(wildcards):
    """An input function: the manifest of a recipe's traces."""
    return traces_of(wildcards.recipe)


def traces_of(recipe):
    """The manifest of a recipe's traces, made or fetched."""
    dataset = SWEEP.dataset(recipe)
    kind = "made" if dataset.made is not None else "hub"
    return f"resources/{kind}/traces/{dataset.name}/manifest.json"


def is_evaluation(done):
    """Whether a result is of an evaluation, not of a point."""
    return Path(done).name == "eval.json"


def proofs_elsewhere(done):
    """What rules made outside results/ for a point or an evaluation: what is asked, and by whom."""
    recipe = Path(done).parts[1]
    asked = SWEEP.items(recipe) if is_evaluation(done) else traces_of(recipe)
    client = "eval" if is_evaluation(done) else "client"
    return [asked, f".envs/{client}/environment.json"]


def documents_of(done):
    """What people wrote for a result; its plan holds what counts of it, so no rule waits for them."""
    return [
        f"config/recipes/{Path(done).parts[1]}.yaml",
        f"config/sites/{SWEEP.site.name}.yaml",
        f"envs/{'eval' if is_evaluation(done) else 'client'}/lock.txt",
        "patches/series.yaml",
    ]


def plan_of(point):
    """The plan of a point, by its folder below results/; its repeats share it."""
    run = run_of(Path("results", point, "replay.json"))
    return f"results/{run.recipe}/conc{run.concurrency}/plan.json"


def recipe_of(point):
    """The recipe of a point, by its folder below results/."""
    return run_of(Path("results", point, "replay.json")).recipe


def proofs_without_nodes(recipe):
    """What proves the identities of a recipe's points, as far as no node is needed for it."""
    return {
        "weights": f"results/{recipe}/weights/manifest.json",
        "image": f"results/{recipe}/image/image.json",
        "dataset": traces_of(recipe),
        "client": ".envs/client/environment.json",
    }


def decide_reuse(point, results):
    """Whether a point is taken from another checkout, or was before."""
    run = run_of(Path(point))
    proofs = {
        name: Path(path) for name, path in proofs_without_nodes(run.recipe).items()
    }
    here = identities_here(
        SWEEP.plan_digest(run.recipe, run.concurrency),
        DRIVER_VERSION,
        SWEEP.patch_set_id(run.recipe),
        proofs,
    )
    return decide(run, here, SWEEP.declared(run.recipe), results, datetime.now(UTC))


REUSED_FROM = SWEEP.settings.reuse or ""
# A job on a node measures what it was sent for: it does not look for the other checkout.
try:
    FOUND = (
        results_of(REUSED_FROM) if REUSED_FROM and workflow.is_main_process else None
    )
except UserError as error:
    raise WorkflowError(str(error))
DECISIONS = {point: decide_reuse(point, FOUND) for point in SWEEP.points()}
for decision in DECISIONS.values():
    if decision.told and workflow.is_main_process:
        logger.warning(decision.told)
REUSED_POINTS = (
    "|".join(
        re.escape(str(Path(point).parent.relative_to("results")))
        for point, decision in DECISIONS.items()
        if decision.taken
    )
    or "(?!)"
)
