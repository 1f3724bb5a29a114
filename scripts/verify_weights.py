"""Hash every weight file on this node and compare with the manifest; leaves the node's receipt."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from serve_repro import program
from serve_repro.documents import read_json, write_json
from serve_repro.node import require_here
from serve_repro.weights.receipt import accept, verify


def prove(model: dict[str, Any], node: str, others: list[dict[str, Any]]) -> dict[str, Any]:
    """A receipt by hashing, or another node's where the site shares the folder and it fits."""
    for other in others:
        accepted = accept(model, node, other)
        if accepted is not None:
            words = "%s: shared, as proven on node %s"
            program.LOGGER.info(words, model["model"], accepted["proven_on"])
            return accepted
    return verify(model, node)


def main(arguments: argparse.Namespace) -> None:
    """Manifest -> receipt of this node."""
    require_here(arguments.node)
    manifest = read_json(arguments.manifest)
    others = [model for path in arguments.shared for model in read_json(path)["models"]]
    receipts = [prove(model, arguments.node, others) for model in manifest["models"]]
    write_json(
        arguments.output,
        {"node": arguments.node, "digest": manifest["digest"], "models": receipts},
    )
    count = sum(len(receipt["files"]) for receipt in receipts)
    program.LOGGER.info("node %s has exactly the manifest's %d files", arguments.node, count)


if __name__ == "__main__":
    parser = program.parser(__doc__)
    parser.add_argument("--manifest", type=Path, required=True, help="manifest.json")
    parser.add_argument(
        "--shared", type=Path, nargs="*", default=[], help="receipts of nodes with the same file system"
    )
    parser.add_argument("--node", required=True, help="this node's name")
    parser.add_argument("--output", type=Path, required=True, help="the node's receipt")
    program.run(main, parser.parse_args())
