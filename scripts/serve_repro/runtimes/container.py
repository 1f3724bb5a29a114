"""What all containers have in common: how a rank sees its folders, and what is mounted there."""

from __future__ import annotations

from typing import NamedTuple

from serve_repro.command import Command
from serve_repro.errors import UserError
from serve_repro.recipe.recipe import Recipe
from serve_repro.recipe.site import Container, Site
from serve_repro.runtimes.view import View

_MODEL, _DRAFT = "/model", "/draft"

VIEW = View(
    vllm=["vllm"],
    # Hub layout: the folder is a snapshot below the mount, and its files are links into the mount.
    weights=f"{_MODEL}${{WEIGHTS_PATH}}",
    draft=f"{_DRAFT}${{DRAFT_PATH}}",
    patches="/patches",
    results="/results",
    scratch="/tmp",  # noqa: S108
    cache="/cache",
)

ENTRY = ["bash", "-c", 'exec "$$@"', "bash"]
"""What runs in place of the image's own entrypoint; the serve command follows."""

OVERLAYS = "${OVERLAY_MOUNTS}"


class Bind(NamedTuple):
    """A folder of the node that the container sees."""

    source: str
    target: str
    read_only: bool


def binds(serve: Command, site: Site) -> list[Bind]:
    """All folders of a rank: verified ones read-only, its own to write, and the site's."""
    draft = any(VIEW.draft in word for word in serve.argv)
    return [
        Bind("${WEIGHTS_MOUNT}", _MODEL, True),
        *([Bind("${DRAFT_MOUNT}", _DRAFT, True)] if draft else []),
        Bind("${PATCH_DIR}", VIEW.patches, True),
        Bind("${RANK_DIR}", VIEW.results, False),
        Bind("${CACHE_DIR}", VIEW.cache, False),
        Bind("${SCRATCH}", VIEW.scratch, False),
        *(Bind(mount.source, mount.target, mount.read_only) for mount in settings(site).mounts),
    ]


def environment(serve: Command) -> dict[str, str]:
    """The serve command's environment, with a home that its user may write, and a name for them.

    An image knows root and a few names; Python programs ask for both. What recipe and site say wins.
    """
    return {"HOME": VIEW.scratch, "USER": "serve-repro", "LOGNAME": "serve-repro"} | serve.env


def overlays(serve: Command) -> list[str]:
    """The word that stands for the mounts of patched files, where there are patches."""
    return [OVERLAYS] if "SERVE_REPRO_PATCH_SET" in serve.env else []


def limits(site: Site) -> list[str]:
    """The site's limits for runtimes that have no option for them: prlimit around the command."""
    found = settings(site).ulimits
    words = [f"--{key}={'unlimited' if value == '-1' else value}" for key, value in found.items()]
    return ["prlimit", *words] if words else []


def image(recipe: Recipe) -> str:
    """The image's name without its tag: the digest takes the tag's place."""
    reference = recipe.image.reference
    if reference is None:
        raise UserError(
            "this site runs containers, and the recipe names no image",
            where=f"config/recipes/{recipe.name}.yaml: image.reference",
            expected="an image reference",
            found=f"only the environment {recipe.image.environment}",
        )
    head, _, tail = reference.rpartition("/")
    name = tail.split("@")[0].split(":")[0]
    return f"{head}/{name}" if head else name


def settings(site: Site) -> Container:
    """The site's section `container`, which its own check asks for."""
    assert site.container is not None
    return site.container


def each(option: str, values: list[str]) -> list[str]:
    """An option once for each value."""
    return [word for value in values for word in (option, value)]
