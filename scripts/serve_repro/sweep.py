"""What the Snakefile asks: which recipes, points, nodes and identities this run is about."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

from serve_repro.batch import point_resources, step_resources
from serve_repro.errors import UserError
from serve_repro.image.environment import lock_digest
from serve_repro.patches.series import Patch, choose, read_series, set_id
from serve_repro.plan.build import make_plan
from serve_repro.plan.model import Plan, read_plan
from serve_repro.plan.shell import render
from serve_repro.recipe.load import load, meant, parse
from serve_repro.recipe.published import Published
from serve_repro.recipe.recipe import Dataset, ModelSource, Recipe
from serve_repro.recipe.settings import Settings
from serve_repro.recipe.site import Site
from serve_repro.result_paths import Run, replay_path


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
        for recipe in self.recipes.values():
            self.patches(recipe.name)
        self.plans = {
            (name, concurrency): make_plan(recipe, self.site, concurrency)
            for name, recipe in self.recipes.items()
            for concurrency in self._chosen(recipe)
        }
        self._check_shared_names()

    def points(self) -> list[str]:
        """Every point's file, in order, one for each of its repeats."""
        repeats = range(1, self.settings.repeats + 1)
        return [
            replay_path(Run(name, level, repeat)) for name, level in self.plans for repeat in repeats
        ]

    def plan(self, recipe: str, concurrency: int | str) -> Plan:
        """One point's plan."""
        return self.plans[recipe, int(concurrency)]

    def plan_digest(self, recipe: str, concurrency: int | str) -> str:
        """Identity of one point's plan."""
        return self.plan(recipe, concurrency).digest()

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
        return next(plan.image for (name, _), plan in self.plans.items() if name == recipe)

    def reference(self, recipe: str) -> str:
        """Name and tag of a recipe's image; empty at a site without containers."""
        return (self.recipes[recipe].image.reference or "") if self._has_containers() else ""

    def pin(self, recipe: str) -> str:
        """The digest that the tag must have; empty if any will do, or there is no tag."""
        return (self.recipes[recipe].image.digest or "") if self._has_containers() else ""

    def nodes(self, recipe: str) -> list[str]:
        """The nodes that a recipe may serve on: each needs its proofs."""
        return next(plan.nodes for (name, _), plan in self.plans.items() if name == recipe)

    def models(self, recipe: str) -> list[ModelSource]:
        """The models of a recipe: what is served, and the draft if there is one."""
        chosen = self.recipes[recipe]
        drafts = [chosen.speculation.draft] if chosen.speculation else []
        return [chosen.model, *drafts]

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
        return point_resources(self.plan(recipe, concurrency), self.site)

    def step_resources(self, node: str) -> dict[str, Any]:
        """What a scheduler is asked for, for a step that proves one node."""
        return step_resources(node, self.site)

    def patches(self, recipe: str) -> list[Patch]:
        """The patches of a recipe."""
        where = f"config/recipes/{recipe}.yaml: patches"
        return choose(self._series, self.recipes[recipe].patches, where)

    def patch_set_id(self, recipe: str) -> str:
        """Identity of a recipe's patch set."""
        return set_id(self.patches(recipe), self.base / "patches")

    def lock_digest(self, environment: str) -> str:
        """Identity of what an environment is to contain."""
        return lock_digest(self.base / "envs" / environment)

    def _has_containers(self) -> bool:
        return self.site.runtime != "process"

    def _chosen(self, recipe: Recipe) -> list[int]:
        return self.settings.concurrencies or recipe.concurrencies

    def _check_shared_names(self) -> None:
        """Made things lie in one folder by name: two recipes may share one, not redefine it."""
        seen: dict[str, tuple[str, Any]] = {}
        for name in self.recipes:
            made: list[tuple[str, Any]] = [(m.name, m.made) for m in self.models(name)]
            made.append((self.dataset(name).name, self.dataset(name).made))
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
