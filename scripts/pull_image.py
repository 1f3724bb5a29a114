"""Have the resolved image on this node and prove it; a pinned environment is compared with its proof."""

from __future__ import annotations

import argparse
from pathlib import Path

from serve_repro import program
from serve_repro.documents import read_json, write_json
from serve_repro.errors import UserError
from serve_repro.image import environment
from serve_repro.node import require_here


def main(arguments: argparse.Namespace) -> None:
    """image.json -> receipt of this node."""
    require_here(arguments.node)
    image = read_json(arguments.image)
    if image["kind"] != "environment":
        raise UserError(
            "container images are resolved by this version, and not pulled yet",
            where=f"{image['image']}@{image['digest']}",
            expected="runtime: process, with a pinned environment",
        )
    name = image["image"].removeprefix("envs/")
    found = environment.inspect(environment.python_of(name))
    here = environment.description(name, Path("envs") / name, found)
    if here["digest"] != image["digest"]:
        raise UserError(
            "this node's environment is not the resolved one",
            where=f"node {arguments.node}: {environment.python_of(name)}",
            expected=image["digest"],
            found=here["digest"],
            remedy=f"rm -r {environment.ROOT / name}; the next run builds it again",
        )
    write_json(arguments.output, {"node": arguments.node, **image})
    program.LOGGER.info("node %s has %s", arguments.node, image["image"])


if __name__ == "__main__":
    parser = program.parser(__doc__)
    parser.add_argument("--image", type=Path, required=True, help="image.json")
    parser.add_argument("--node", required=True, help="this node's name")
    parser.add_argument("--output", type=Path, required=True, help="the node's receipt")
    program.run(main, parser.parse_args())
