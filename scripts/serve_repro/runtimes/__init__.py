"""What a rank runs in. Each runtime renders words; none of them starts anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from serve_repro.command import Command
from serve_repro.recipe.recipe import Recipe
from serve_repro.recipe.site import Site
from serve_repro.runtimes import docker, process
from serve_repro.runtimes.view import View


class Runtime(NamedTuple):
    """The functions that a runtime offers."""

    view: View
    """Where a rank finds its program, weights, patches and folder."""
    image: Callable[[Recipe], str]
    """What the recipe's image is called here; an error where it has none of this kind."""
    start: Callable[[Command, str, str, Site], Command]
    """(serve command, image, name, site) -> the command that starts it."""
    cleanup: Callable[[str, Site], list[Command]]
    """(name, site) -> commands that remove what may be left."""
    mount: Callable[[str, str], list[str]]
    """(file, place in the image) -> the words that lay one over the other."""


RUNTIMES = {
    "process": Runtime(process.VIEW, process.image, process.start, process.cleanup, process.mount),
    "docker": Runtime(docker.VIEW, docker.image, docker.start, docker.cleanup, docker.mount),
}
