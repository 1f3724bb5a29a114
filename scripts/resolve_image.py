"""Resolve what serves to one digest: today a pinned environment, whose contents are its identity."""

from __future__ import annotations

import argparse
from pathlib import Path

from serve_repro import program
from serve_repro.documents import read_json, write_json
from serve_repro.errors import UserError


def main(arguments: argparse.Namespace) -> None:
    """Plan's image -> image.json with its digest."""
    if arguments.runtime != "process":
        raise UserError(
            f"images for runtime {arguments.runtime} cannot be resolved by this version",
            where=arguments.image,
            expected="runtime: process, with a pinned environment",
        )
    proof = read_json(arguments.environment)
    image = {"image": arguments.image, "kind": "environment", "digest": proof["digest"]}
    write_json(arguments.output, image)
    program.LOGGER.info("%s is %s", arguments.image, proof["digest"])


if __name__ == "__main__":
    parser = program.parser(__doc__)
    parser.add_argument("--image", required=True, help="the plan's image")
    parser.add_argument("--runtime", required=True, help="the site's runtime")
    parser.add_argument("--environment", type=Path, help="runtime process: environment.json")
    parser.add_argument("--output", type=Path, required=True, help="image.json")
    program.run(main, parser.parse_args())
