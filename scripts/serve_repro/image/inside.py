"""Look at files inside an image, with the image's own Python and nothing but its standard library."""

from __future__ import annotations

import json
from typing import NamedTuple

from serve_repro.errors import UserError
from serve_repro.image.call import CallFailed
from serve_repro.image.engine import Engine
from serve_repro.image.resolved import Image

# The package is found and not imported: importing a server's package takes seconds, and a GPU.
_FIND = """
import hashlib, importlib.util, json, os, sys
found = {}
for name in sys.argv[1:]:
    top, *rest = name.split(".")
    spec = importlib.util.find_spec(top)
    places = spec.submodule_search_locations if spec else None
    base = os.path.join(next(iter(places), ""), *rest) if places else ""
    path = os.path.join(base, "__init__.py") if os.path.isdir(base) else base + ".py"
    there = os.path.isfile(path)
    digest = hashlib.sha256(open(path, "rb").read()).hexdigest() if there else None
    found[name] = [path if base else name, digest]
print(json.dumps(found))
"""


class Source(NamedTuple):
    """A module's source file, as an image has it."""

    path: str
    """Where it is, or would be, inside the image."""
    sha256: str | None
    """None: there is no such file."""


def sources(engine: Engine, image: Image, modules: list[str], node: str) -> dict[str, Source]:
    """Find and hash the source files of modules.

    Args:
        engine: what holds the image on this node.
        image: the image, which is here.
        modules: dotted names.
        node: this node's name, for messages.

    Raises:
        UserError: the image's Python did not run.
    """
    if not modules:
        return {}
    try:
        # -I: neither the caller's folder nor PYTHONPATH may add to what is found.
        said = engine.run(image, ["python3", "-I", "-", *modules], stdin=_FIND)
    except CallFailed as error:
        raise UserError(
            "Python does not run inside the image",
            where=f"node {node}: {image.pinned}",
            found=error.said,
        ) from error
    return {name: Source(*found) for name, found in json.loads(said).items()}
