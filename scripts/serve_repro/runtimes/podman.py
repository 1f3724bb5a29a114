"""podman: as Docker, without a daemon."""

from __future__ import annotations

from serve_repro.command import Command
from serve_repro.recipe.site import Site
from serve_repro.runtimes import engine_words

USER = ["--user", "0:0"]
"""Its root is who calls it: that user itself where that is not root."""


def start(serve: Command, image: str, name: str, site: Site) -> Command:
    """`podman run` around the serve command."""
    return engine_words.run(serve, image, name, site, USER)
