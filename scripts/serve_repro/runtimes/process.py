"""No container: a pinned Python environment on the node, started directly."""

from __future__ import annotations

from serve_repro.command import Command
from serve_repro.errors import UserError
from serve_repro.recipe.recipe import Recipe
from serve_repro.recipe.site import Site
from serve_repro.runtimes.view import View

VIEW = View(
    # Not the `vllm` script: its first line holds an absolute path, which a moved checkout breaks.
    vllm=["${SERVE_PYTHON}", "-m", "vllm.entrypoints.cli.main"],
    weights="${WEIGHTS_MOUNT}${WEIGHTS_PATH}",
    draft="${DRAFT_MOUNT}${DRAFT_PATH}",
    patches="${PATCH_DIR}",
    results="${RANK_DIR}",
    scratch="${SCRATCH}",
    cache="${CACHE_DIR}",
    overlay="${RUN_DIR}/view",
)


def image(recipe: Recipe) -> str:
    """The environment's name, as envs/<name>."""
    if recipe.image.environment is None:
        raise UserError(
            "this site runs without containers, and the recipe names no environment",
            where=f"config/recipes/{recipe.name}.yaml: image.environment",
            expected="a pinned environment of envs/",
            found=f"only the image {recipe.image.reference}",
        )
    return f"envs/{recipe.image.environment}"


def start(serve: Command, image: str, name: str, site: Site) -> Command:
    """The serve command itself."""
    del image, name, site  # a process needs none of them
    return serve


def mount(source: str, target: str) -> list[str]:
    """Nothing is mounted: patched packages come first on PYTHONPATH."""
    del source, target
    return []


def cleanup(name: str, site: Site) -> list[Command]:
    """Nothing outlives a process that the launcher cannot see."""
    del name, site
    return []
