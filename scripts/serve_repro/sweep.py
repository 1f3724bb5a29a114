"""What the Snakefile asks: which recipes, points, nodes and identities this run is about."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from serve_repro.batch import point_resources, step_resources
from serve_repro.documents import digest
from serve_repro.errors import UserError
from serve_repro.image.environment import lock_digest
from serve_repro.inferencex.labels import labels
from serve_repro.nodes import choice, quarantine
from serve_repro.patches.series import Patch, choose, read_series, set_id
from serve_repro.patches.switches import switched, tables
from serve_repro.plan.build import make_plan
from serve_repro.plan.evaluation import make_evaluation_plan
from serve_repro.plan.model import EvaluationPlan, Plan, read_plan
from serve_repro.plan.shell import render
from serve_repro.recipe.evaluation import Evaluation
from serve_repro.recipe.load import load, meant, parse
from serve_repro.recipe.published import Published
from serve_repro.recipe.recipe import Dataset, ModelSource, Recipe
from serve_repro.recipe.settings import Settings
from serve_repro.recipe.site import Site
from serve_repro.result_paths import Run, replay_path
from serve_repro.weights.seen import seen


class Sweep:
    """The checked settings, recipes and site of one workflow run.

    Every method is a pure look-up, and returns plain values that Snakemake can compare.

    Args:
        config: Snakemake's merged configuration.
        base: the workflow's folder.

    Raises:
        UserError: any mistake in any of the files, before anything starts.
    """

    def __init__(self, config: Mapping[str, Any], base: Path) -> None:
        self.base = base
        self.settings = parse(config, Settings, "config")
        self.site = load(_named(base, "sites", self.settings.site), Site)
        self.recipes = {
            name: load(_named(base, "recipes", name), Recipe) for name in self.settings.recipes
        }
        self._published = {
            path: load(path, Published)
            for path in sorted((base / "config" / "published").glob("*.yaml"))
        }
        self._series = read_series(base / "patches")
        self._changes = switched(self._series, self.recipes, self.settings.patches)
        for name, changed in self._changes.items():
            self.recipes[name] = self.recipes[name].model_copy(update=changed)
        for recipe in self.recipes.values():
            self._check_patches(recipe)
        self.plans = {
            (name, concurrency): make_plan(recipe, self.site, concurrency)
            for name, recipe in self.recipes.items()
            for concurrency in self._chosen(recipe)
        }
        self.evaluations = {
            name: make_evaluation_plan(recipe, self.site)
            for name, recipe in self.recipes.items()
            if recipe.eval is not None
        }
        self._check_shared_names()
        self._check_overrides()
        self._locks: dict[str, str] = {}

    def points(self) -> list[str]:
        """Every point's file, in order, one for each of its repeats."""
        repeats = range(1, self.settings.repeats + 1)
        return [
            replay_path(Run(name, level, repeat)) for name, level in self.plans for repeat in repeats
        ]

    def evals(self) -> list[str]:
        """The file of each recipe's accuracy evaluation; recipes without one have none."""
        return [
            f"results/{name}/eval/{plan.accuracy.task}/eval.json"
            for name, plan in self.evaluations.items()
        ]

    def evaluation(self, recipe: str) -> EvaluationPlan:
        """The plan of a recipe's accuracy evaluation."""
        return self.evaluations[recipe]

    def evaluation_resources(self, recipe: str) -> dict[str, Any]:
        """What a scheduler is asked for, for one evaluation."""
        return point_resources(self.evaluations[recipe], self.site, self.nodes(recipe))

    def items(self, recipe: str) -> str:
        """The manifest of the questions that a recipe is evaluated on."""
        chosen = self._eval(recipe).dataset
        return f"resources/{'made' if chosen.made else 'hub'}/items/{chosen.name}/manifest.json"

    def item_sources(self) -> dict[str, dict[str, Any]]:
        """{name: numbers, or repository and revision} of all sets of questions."""
        sets = [self._eval(name).dataset for name in self.evaluations]
        return {
            chosen.name: source.model_dump()
            for chosen in sets
            for source in (chosen.made, chosen.hub)
            if source is not None
        }

    def plan(self, recipe: str, concurrency: int | str) -> Plan:
        """One point's plan."""
        return self.plans[recipe, int(concurrency)]

    def changes(self, recipe: str) -> dict[str, Any]:
        """Keys of a recipe that the settings' switches change, with their values."""
        return self._changes.get(recipe, {})

    def plan_digest(self, recipe: str, concurrency: int | str) -> str:
        """Identity of one point's plan."""
        return self.plan(recipe, concurrency).digest()

    def inferencex_labels(self, recipe: str, concurrency: int | str) -> dict[str, Any]:
        """What InferenceX's aggregate says of one point that no measurement tells."""
        image = self.reference(recipe) or self.image(recipe)
        return labels(self.recipes[recipe], self.plan(recipe, concurrency), image)

    def previews(self) -> list[str]:
        """Shell text of one plan a recipe whose plan files are not what would be written now."""
        shown = []
        for recipe in self.recipes:
            plans = [plan for (name, _), plan in self.plans.items() if name == recipe]
            new = [plan for plan in plans if not _is_written(plan)]
            if new:
                others = [str(plan.concurrency) for plan in new[1:]]
                listed = ", ".join(others)
                same = f"# The same server, and --concurrency {listed}, at the other points.\n"
                shown.append(render(new[0]) + (same if others else ""))
        return shown

    def overdue(self, today: date) -> list[str]:
        """What someone should look at again by now: excluded nodes and patches past their dates."""
        told = [
            f"node {entry.node} is excluded ({entry.reason}) until {entry.until}: look at it again"
            for entry in self.site.excludes
            if entry.until < today
        ]
        patches = {patch.id: patch for name in self.recipes for patch in self.patches(name)}
        told += [
            f"patch {patch.id} should have been looked at by {patch.expires}: is it still needed?"
            for patch in patches.values()
            if patch.expires < today
        ]
        return told

    def published(self) -> list[str]:
        """The files of published values for this run's recipes."""
        return [
            str(path.relative_to(self.base))
            for path, document in self._published.items()
            if document.recipe in self.recipes
        ]

    def image(self, recipe: str) -> str:
        """What a recipe's ranks run in: an image name, or envs/<name>."""
        return self._a_plan(recipe).image

    def reference(self, recipe: str) -> str:
        """Name and tag of a recipe's image; empty at a site without containers."""
        return (self.recipes[recipe].image.reference or "") if self._has_containers() else ""

    def pin(self, recipe: str) -> str:
        """The digest that the tag must have; empty if any will do, or there is no tag."""
        return (self.recipes[recipe].image.digest or "") if self._has_containers() else ""

    def engine(self) -> dict[str, Any]:
        """What holds images at this site: its runtime, that one's words, its folder for image files."""
        container = self.site.container if self._has_containers() else None
        return {
            "runtime": self.site.runtime,
            "command": container.command if container else [],
            "images": container.images if container else None,
        }

    def nodes(self, recipe: str) -> list[str]:
        """The nodes that a recipe may serve on: each needs its proofs. None before they are chosen."""
        if self.site.nodes is not None:
            return self.site.nodes
        record = choice.read_record(choice.record_path(recipe))
        return [] if record is None else list(record["nodes"])

    def node_request(self, recipe: str) -> dict[str, Any]:
        """What nodes are chosen by, where the site does not name them."""
        return choice.request(self._a_plan(recipe), self.site)

    def instead_of(self, recipe: str) -> list[str]:
        """Chosen nodes that are in quarantine now, so that others are to be chosen."""
        record = choice.read_record(choice.record_path(recipe))
        return choice.instead_of(record, self.node_request(recipe), self._kept_out())

    def models(self, recipe: str) -> list[ModelSource]:
        """The models of a recipe: what is served, and the draft if there is one."""
        chosen = self.recipes[recipe]
        drafts = [chosen.speculation.draft] if chosen.speculation else []
        return [chosen.model, *drafts]

    def weight_sources(self, recipe: str) -> dict[str, Any]:
        """Where a recipe's models may come from: all that decides which files are taken."""
        ids = {model.id for model in self.models(recipe)}
        overrides = self.settings.weight_overrides
        return {
            "models": [model.model_dump(include={"id", "revision"}) for model in self.models(recipe)],
            "roots": self.site.weight_roots,
            "shared": self.site.shared_weight_roots,
            "download_to": self.site.download_weights_to,
            "overrides": {name: path for name, path in overrides.items() if name in ids},
            "mounted": self._has_containers(),
        }

    def weights_seen(self, recipe: str) -> str:
        """What the status of a recipe's weight files tells from here; made models have a rule."""
        models = [model for model in self.models(recipe) if model.made is None]
        return seen(models, self.weight_sources(recipe))

    def first_node(self, recipe: str) -> str | None:
        """The node that hashes shared weights for all; None if each hashes its own."""
        return next(iter(self.nodes(recipe)), None) if self.site.shared_weight_roots else None

    def made_models(self) -> dict[str, dict[str, Any]]:
        """{name: numbers} of the models that are made on the spot."""
        return {
            model.name: model.made.model_dump()
            for recipe in self.recipes
            for model in self.models(recipe)
            if model.made is not None
        }

    def dataset(self, recipe: str) -> Dataset:
        """The traces of a recipe."""
        return self.recipes[recipe].replay.dataset

    def made_traces(self) -> dict[str, dict[str, Any]]:
        """{name: numbers} of the traces that are made on the spot."""
        return {
            dataset.name: dataset.made.model_dump()
            for dataset in map(self.dataset, self.recipes)
            if dataset.made is not None
        }

    def hub_datasets(self) -> dict[str, dict[str, Any]]:
        """{name: repository and revision} of the published traces."""
        return {
            dataset.name: dataset.hub.model_dump()
            for dataset in map(self.dataset, self.recipes)
            if dataset.hub is not None
        }

    def point_resources(self, recipe: str, concurrency: int | str) -> dict[str, Any]:
        """What a scheduler is asked for, for one point."""
        plan = self.plan(recipe, concurrency)
        return point_resources(plan, self.site, self.nodes(recipe), self._kept_out())

    def step_resources(self, node: str) -> dict[str, Any]:
        """What a scheduler is asked for, for a step that proves one node."""
        return step_resources(node, self.site)

    def patches(self, recipe: str) -> list[Patch]:
        """The patches of a recipe."""
        where = f"config/recipes/{recipe}.yaml: patches"
        return choose(self._series, self.recipes[recipe].patches, where)

    def starts_from_image(self, recipe: str) -> bool:
        """Whether a recipe's patches start from files of the image."""
        return any(patch.url is not None for patch in self.patches(recipe))

    def tables(self, recipe: str) -> list[str]:
        """The patches whose rows are laid over the image's tuned GEMM table."""
        return tables(self._series, self.recipes[recipe].patches)

    def tuned_gpu(self, recipe: str) -> list[str]:
        """[gfx, compute units] of the only GPU whose rows are kept; empty: those of all."""
        chosen = self.recipes[recipe].tuned_gemm
        return [] if chosen is None or chosen.gfx is None else [chosen.gfx, str(chosen.cu_num)]

    def patch_source(self) -> tuple[list[str], str]:
        """Where others' files come from here: ([prefix, what stands for it], offline folder)."""
        files = self.site.patch_files
        mirror = (
            [] if files is None or files.mirror is None else [files.mirror.prefix, files.mirror.instead]
        )
        return mirror, (files.offline or "") if files else ""

    def patch_set_id(self, recipe: str) -> str:
        """Identity of a recipe's patch set."""
        return set_id(self.patches(recipe), self.base / "patches")

    def lock_digest(self, environment: str) -> str:
        """Identity of what an environment is to contain."""
        if environment not in self._locks:  # every point asks
            self._locks[environment] = lock_digest(self.base / "envs" / environment)
        return self._locks[environment]

    def declared(self, recipe: str) -> str:
        """Identity of what people wrote here about all that a point stands on, but for its plan."""
        chosen = self.recipes[recipe]
        environment = None if self._has_containers() else chosen.image.environment
        return digest(
            [
                [model.model_dump() for model in self.models(recipe)],
                self.weight_sources(recipe),
                [self.image(recipe), self.reference(recipe), self.pin(recipe)],
                self.lock_digest(environment) if environment else None,
                self.patch_set_id(recipe),
                self.dataset(recipe).model_dump(),
                self.lock_digest("client"),
            ]
        )

    def _a_plan(self, recipe: str) -> Plan:
        """A plan of a recipe, for what all its points have in common."""
        return next(plan for (name, _), plan in self.plans.items() if name == recipe)

    def _kept_out(self) -> quarantine.Entries:
        path = quarantine.path_of(quarantine.FOLDER, self.site.name)
        return quarantine.entries(path, datetime.now(UTC))

    def _has_containers(self) -> bool:
        return self.site.runtime != "process"

    def _eval(self, recipe: str) -> Evaluation:
        chosen = self.recipes[recipe].eval
        assert chosen is not None  # `evaluations` has only these
        return chosen

    def _chosen(self, recipe: Recipe) -> list[int]:
        return self.settings.concurrencies or recipe.concurrencies

    def _check_patches(self, recipe: Recipe) -> None:
        found = self.tables(recipe.name)
        if bool(found) != (recipe.tuned_gemm is not None):
            raise UserError(
                "rows for the tuned GEMM table come by patches of kind data, and 'tuned_gemm' with them",
                where=f"config/recipes/{recipe.name}.yaml: tuned_gemm",
                expected="the section, if and only if one of the patches has a table",
                found=f"{found or 'no such patch'}, {'a' if recipe.tuned_gemm else 'no'} section",
            )

    def _check_overrides(self) -> None:
        known = {model.id for name in self.recipes for model in self.models(name)}
        for name in self.settings.weight_overrides:
            if name not in known:
                raise UserError(
                    f"none of the recipes has the model {name}{meant(name, known)}",
                    where="config: weight_overrides",
                )

    def _check_shared_names(self) -> None:
        """Made things lie in one folder by name: two recipes may share one, not redefine it."""
        seen: dict[str, tuple[str, Any]] = {}
        for name in self.recipes:
            made: list[tuple[str, Any]] = [(m.name, m.made) for m in self.models(name)]
            made.append((self.dataset(name).name, self.dataset(name).made))
            if name in self.evaluations:
                made.append((self._eval(name).dataset.name, self._eval(name).dataset.made))
            for label, numbers in made:
                other, before = seen.setdefault(label, (name, numbers))
                if before != numbers:
                    raise UserError(
                        f"{label} is made from other numbers than in {other}",
                        where=f"config/recipes/{name}.yaml",
                        expected=before,
                        found=numbers,
                    )


def _is_written(plan: Plan) -> bool:
    path = Path(f"results/{plan.recipe}/conc{plan.concurrency}/plan.json")
    try:
        return read_plan(path) == plan
    except UserError:
        return False


def _named(base: Path, kind: str, name: str) -> Path:
    path = base / "config" / kind / f"{name}.yaml"
    if not path.is_file():
        known = [file.stem for file in path.parent.glob("*.yaml")]
        raise UserError(f"no such file{meant(name, known)}", where=str(path.relative_to(base)))
    return path
