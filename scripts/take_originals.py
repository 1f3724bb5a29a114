"""Take from the image on this node the files that a patch set starts from."""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

from serve_repro import program
from serve_repro.documents import read_json, write_json
from serve_repro.image.engine import engine_of
from serve_repro.image.resolved import read_image
from serve_repro.image.software import look
from serve_repro.node import require_here
from serve_repro.patches.overlay import needed_files


def main(arguments: argparse.Namespace) -> None:
    """Patch set + the node's image -> originals/, and originals.json beside it."""
    require_here(arguments.node)
    folder = arguments.patch_set.parent
    image = read_image(read_json(arguments.image))
    paths, patterns = needed_files(read_json(arguments.patch_set), folder)
    engine = engine_of(arguments.engine)
    found = look(engine, image, arguments.node, paths=paths, patterns=patterns, contents=True)
    target = arguments.output.parent / "originals"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for path, data in found.contents.items():
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        (target / path).write_bytes(data)
    write_json(arguments.output, {"image": image.digest, "roots": found.roots, "files": found.files})
    program.LOGGER.info("%d files of %s", len(found.contents), image.pinned)


if __name__ == "__main__":
    parser = program.parser(__doc__)
    parser.add_argument("--patch-set", type=Path, required=True, help="set.json")
    parser.add_argument("--image", type=Path, required=True, help="the node's image receipt")
    parser.add_argument("--engine", type=json.loads, required=True, help="JSON: the site's engine")
    parser.add_argument("--node", required=True, help="this node's name")
    parser.add_argument("--output", type=Path, required=True, help="originals.json")
    program.run(main, parser.parse_args())
