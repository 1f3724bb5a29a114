"""What holds images on a node: one interface over containers and pinned environments."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from serve_repro.errors import UserError
from serve_repro.image.apptainer import Apptainer
from serve_repro.image.docker import Docker
from serve_repro.image.enroot import Enroot
from serve_repro.image.podman import Podman
from serve_repro.image.process import Process
from serve_repro.image.resolved import Image


class Engine(Protocol):
    """What every runtime can do with an image on the node that this process runs on.

    Each method raises UserError where there is no such engine or it does not answer, and CallFailed
    where it says no.
    """

    space: int
    """Free bytes that a pull needs for each byte that travels (an estimate)."""
    credentials: str
    """How to log in to a registry, and where the login is looked for."""

    def version(self) -> str:
        """The engine's version."""

    def target(self, image: Image) -> str:
        """What a run names: name@digest, or a file."""

    def removal(self, image: Image) -> str:
        """What a person does to take the image off this node."""

    def present(self, image: Image) -> str | None:
        """The configuration's digest of what lies here for this image; None: nothing. No network."""

    def fetch(self, image: Image, timeout: float) -> None:
        """One try to have it, in seconds at most `timeout`."""

    def stores(self) -> list[Path]:
        """Folders that a pull fills."""

    def run(self, image: Image, words: list[str], stdin: str = "") -> str:
        """Standard output of a small command inside the image, which must be here."""


_WITH_STORE: dict[str, Callable[[list[str]], Engine]] = {"docker": Docker, "podman": Podman}
_WITH_FILES: dict[str, Callable[[list[str], Path], Engine]] = {"apptainer": Apptainer, "enroot": Enroot}


def engine_of(site: dict[str, Any]) -> Engine:
    """The engine of a site.

    Args:
        site: {runtime, command, images}: the site's own words, and its folder for image files.

    Raises:
        UserError: an engine that keeps images as files, at a site without a folder for them.
    """
    runtime = site["runtime"]
    if runtime == "process":
        return Process()
    if runtime in _WITH_STORE:
        return _WITH_STORE[runtime](site["command"])
    if not site["images"]:
        raise UserError(
            f"runtime {runtime} keeps images as files, and the site has no folder for them",
            where="config/sites: container.images",
            expected="a folder on each node's own disk",
        )
    return _WITH_FILES[runtime](site["command"], Path(site["images"]).expanduser())
