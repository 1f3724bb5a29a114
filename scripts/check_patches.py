"""Check on this node that every patch meets the source it was written for; leaves a receipt."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from serve_repro import program
from serve_repro.documents import read_json, write_json
from serve_repro.image.engine import engine_of
from serve_repro.image.inside import sources
from serve_repro.image.resolved import read_image
from serve_repro.image.software import look
from serve_repro.node import require_here
from serve_repro.patches.bundle import compare_targets, target_modules
from serve_repro.patches.receipt import check_overlay, with_overlay


def main(arguments: argparse.Namespace) -> None:
    """Patch set and overlay + the node's image -> receipt of this node."""
    require_here(arguments.node)
    built, overlay = read_json(arguments.patch_set), read_json(arguments.overlay)
    image = read_image(read_json(arguments.image))
    engine = engine_of(arguments.engine)
    files = check_overlay(
        overlay,
        built,
        arguments.patch_set.parent,
        look(
            engine,
            image,
            arguments.node,
            paths=[file["path"] for file in overlay["files"]],
            distributions=[entry["distribution"] for entry in built["versions"]],
        ),
        arguments.node,
    )
    found = sources(engine, image, target_modules(built), arguments.node)
    targets = compare_targets(built, with_overlay(found, overlay), arguments.node)
    write_json(
        arguments.output,
        {
            "node": arguments.node,
            "digest": f"sha256:{overlay['id']}",
            "targets": targets,
            "files": files,
        },
    )
    program.LOGGER.info(
        "node %s: %d targets and %d files as expected", arguments.node, len(targets), len(files)
    )


if __name__ == "__main__":
    parser = program.parser(__doc__)
    parser.add_argument("--patch-set", type=Path, required=True, help="set.json")
    parser.add_argument("--overlay", type=Path, required=True, help="overlay.json")
    parser.add_argument("--image", type=Path, required=True, help="the node's image receipt")
    parser.add_argument("--engine", type=json.loads, required=True, help="JSON: the site's engine")
    parser.add_argument("--node", required=True, help="this node's name")
    parser.add_argument("--output", type=Path, required=True, help="the node's receipt")
    program.run(main, parser.parse_args())
