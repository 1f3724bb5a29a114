"""Resolve what serves to one digest: a container image's tag, or a pinned environment's contents."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from serve_repro import program
from serve_repro.documents import read_json, write_json
from serve_repro.image import registry


def main(arguments: argparse.Namespace) -> None:
    """Plan's image -> image.json with its digest."""
    image = _environment(arguments) if arguments.runtime == "process" else _container(arguments)
    write_json(arguments.output, image)
    program.LOGGER.info("%s is %s", arguments.reference or arguments.image, image["digest"])


def _environment(arguments: argparse.Namespace) -> dict[str, Any]:
    proof = read_json(arguments.environment)
    return {"image": arguments.image, "kind": "environment", "digest": proof["digest"]}


def _container(arguments: argparse.Namespace) -> dict[str, Any]:
    found = registry.resolve(arguments.reference, arguments.image, arguments.pin)
    return {"image": arguments.image, "reference": arguments.reference, "kind": "image", **found}


if __name__ == "__main__":
    parser = program.parser(__doc__)
    parser.add_argument("--image", required=True, help="the plan's image")
    parser.add_argument("--runtime", required=True, help="the site's runtime")
    # Each may stand without a value: what a site does not have, the rule leaves empty.
    parser.add_argument("--environment", nargs="?", type=Path, help="process: environment.json")
    parser.add_argument("--reference", nargs="?", help="containers: image name and tag")
    parser.add_argument("--pin", nargs="?", help="containers: the digest that the tag must have")
    parser.add_argument("--output", type=Path, required=True, help="image.json")
    program.run(main, parser.parse_args())
