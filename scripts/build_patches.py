"""Build a recipe's patch set into one folder, with the hash of every part."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from serve_repro import program
from serve_repro.patches.bundle import build
from serve_repro.patches.fetch import fetch
from serve_repro.patches.series import choose, read_series


def main(arguments: argparse.Namespace) -> None:
    """Patch ids -> set.json, hooks/ and others' fetched files beside it."""
    patches = choose(read_series(arguments.folder), json.loads(arguments.ids), "the recipe's patches")
    mirror = tuple(arguments.mirror) if arguments.mirror else None
    fetched = {
        patch.id: fetch(
            patch.url, patch.sha256, arguments.cache, mirror=mirror, offline=arguments.offline
        )
        for patch in patches
        if patch.url is not None and patch.sha256 is not None
    }
    built = build(patches, arguments.folder, arguments.output.parent, fetched)
    program.LOGGER.info("patch set %s: %d patches", built["id"][:12], len(patches))


if __name__ == "__main__":
    parser = program.parser(__doc__)
    parser.add_argument("--ids", required=True, help="the recipe's patch ids, as JSON")
    parser.add_argument("--folder", type=Path, default=Path("patches"), help="folder of series.yaml")
    parser.add_argument("--cache", type=Path, default=Path("resources/patches"), help="fetched files")
    # Each may stand without a value: what a site does not have, the rule leaves empty.
    parser.add_argument("--mirror", nargs="*", metavar="WORD", help="a prefix, and what stands for it")
    parser.add_argument(
        "--offline", nargs="?", type=Path, help="folder of files by hash or name; no network"
    )
    parser.add_argument("--output", type=Path, required=True, help="set.json")
    program.run(main, parser.parse_args())
