"""Apply a set's diffs and scripts, exactly, to the image's files: what ranks get in their place."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from serve_repro import program
from serve_repro.documents import read_json, write_json
from serve_repro.patches.overlay import lay

NOTHING: dict[str, Any] = {"image": "", "roots": {}, "files": {}}
"""What was taken from the image for a set that changes none of its files."""


def main(arguments: argparse.Namespace) -> None:
    """Patch set + the image's files -> overlay/, and overlay.json beside it."""
    originals = read_json(arguments.originals) if arguments.originals else NOTHING
    overlay = lay(read_json(arguments.patch_set), arguments.patch_set.parent, originals)
    for patch in overlay["patches"]:
        for offset in patch["offsets"]:
            program.LOGGER.info("%s: %s", patch["id"], offset)
    write_json(arguments.output, overlay)
    program.LOGGER.info("overlay %s: %d files", overlay["id"][:12], len(overlay["files"]))


if __name__ == "__main__":
    parser = program.parser(__doc__)
    parser.add_argument("--patch-set", type=Path, required=True, help="set.json")
    parser.add_argument("--originals", nargs="?", type=Path, help="originals.json, where needed")
    parser.add_argument("--output", type=Path, required=True, help="overlay.json")
    program.run(main, parser.parse_args())
