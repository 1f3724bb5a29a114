"""Docker: one container a rank, pulled before by digest, never pulled by the run itself."""

from __future__ import annotations

from serve_repro.command import Command
from serve_repro.recipe.site import Site
from serve_repro.runtimes import engine_words

USER = ["--user", "${USER_IDS}"]
"""Its daemon is root: the calling user is told to it by numbers."""


def start(serve: Command, image: str, name: str, site: Site) -> Command:
    """`docker run` around the serve command."""
    return engine_words.run(serve, image, name, site, USER)
