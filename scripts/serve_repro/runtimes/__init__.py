"""What a rank runs in. Each runtime renders words; none of them starts anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from serve_repro.command import Command
from serve_repro.recipe.recipe import Recipe
from serve_repro.recipe.site import Site
from serve_repro.runtimes import apptainer, container, docker, engine_words, enroot, podman, process
from serve_repro.runtimes.view import View


class Runtime(NamedTuple):
    """The functions that a runtime offers."""

    view: View
    """Where a rank finds its program, weights, patches and folder."""
    image: Callable[[Recipe], str]
    """What the recipe's image is called here; an error where it has none of this kind."""
    start: Callable[[Command, str, str, Site], Command]
    """(serve command, image, name, site) -> the command that starts it."""
    mount: Callable[[str, str], list[str]]
    """(file, place in the image) -> the words that lay one over the other."""
    cleanup: Callable[[str, Site], list[Command]]
    """(name, site) -> commands that remove what may be left."""
    left: Callable[[str, Site], Command] | None = None
    """(name, site) -> prints the container's name while it is there; None: it has none."""
    first_process: Callable[[str, Site], Command] | None = None
    """(name, site) -> prints the id of a container's first process; None: the rank is our child."""


def _engine(start: Callable[[Command, str, str, Site], Command]) -> Runtime:
    """A runtime whose containers live apart from the command that started them."""
    return Runtime(
        container.VIEW,
        container.image,
        start,
        engine_words.mount,
        engine_words.cleanup,
        engine_words.left,
        engine_words.first_process,
    )


RUNTIMES = {
    "process": Runtime(process.VIEW, process.image, process.start, process.mount, process.cleanup),
    "docker": _engine(docker.start),
    "podman": _engine(podman.start),
    # Their containers are children of the command that starts them, and end with it.
    "apptainer": Runtime(
        container.VIEW, container.image, apptainer.start, apptainer.mount, process.cleanup
    ),
    "enroot": Runtime(container.VIEW, container.image, enroot.start, enroot.mount, process.cleanup),
}
