"""Build a recipe's patch set into one folder, with the hash of every part."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from serve_repro import program
from serve_repro.patches.bundle import build
from serve_repro.patches.series import choose, read_series


def main(arguments: argparse.Namespace) -> None:
    """Patch ids -> set.json and hooks/ beside it."""
    patches = choose(read_series(arguments.folder), json.loads(arguments.ids), "the recipe's patches")
    built = build(patches, arguments.folder, arguments.output.parent)
    program.LOGGER.info("patch set %s: %d patches", built["id"][:12], len(patches))


if __name__ == "__main__":
    parser = program.parser(__doc__)
    parser.add_argument("--ids", required=True, help="the recipe's patch ids, as JSON")
    parser.add_argument("--folder", type=Path, default=Path("patches"), help="folder of series.yaml")
    parser.add_argument("--output", type=Path, required=True, help="set.json")
    program.run(main, parser.parse_args())
