"""No container: the image is a pinned environment, proven by all that is installed in it."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from serve_repro.errors import UserError
from serve_repro.image import environment
from serve_repro.image.call import call
from serve_repro.image.resolved import Image


class Process:
    """The interpreter of an environment, where other sites have a container engine."""

    space = 0
    credentials = ""

    def version(self) -> str:
        """What runs the environment: this Python's kind."""
        return platform.python_implementation()

    def target(self, image: Image) -> str:
        """What a run names: the environment's interpreter."""
        return str(_python(image))

    def removal(self, image: Image) -> str:
        """What a person does to take it off this node: the next run builds it again."""
        return f"rm -r {environment.ROOT / _name(image)}"

    def present(self, image: Image) -> str | None:
        """The digest of what is installed here."""
        name = _name(image)
        found = environment.inspect(_python(image))
        return str(environment.description(name, Path("envs") / name, found)["digest"])

    def fetch(self, image: Image, timeout: float) -> None:
        """Nothing is pulled: rule build_environment installs what the lock says."""
        del timeout
        raise UserError("the environment is not built", where=self.target(image))

    def stores(self) -> list[Path]:
        """Nothing is filled."""
        return []

    def run(self, image: Image, words: list[str], stdin: str = "") -> str:
        """Standard output of a command, the environment's programs first on its path."""
        path = f"{_python(image).parent.absolute()}{os.pathsep}{os.environ.get('PATH', '')}"
        return call(["env", f"PATH={path}", *words], stdin=stdin)


def _name(image: Image) -> str:
    return image.name.removeprefix("envs/")


def _python(image: Image) -> Path:
    return environment.python_of(_name(image))
