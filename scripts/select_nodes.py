"""Choose the nodes that a recipe's sweep uses out of a Slurm partition, and say why not the others."""

from __future__ import annotations

import argparse
import json
from datetime import UTC, datetime
from pathlib import Path

from serve_repro import program
from serve_repro.documents import write_json
from serve_repro.nodes import quarantine
from serve_repro.nodes.choice import choose, document
from serve_repro.nodes.partition import client_environment, expand, look_prefix, nodes_of
from serve_repro.nodes.visit import Look, Visit, look_at_all
from serve_repro.plan.model import NodeNeeds


def main(arguments: argparse.Namespace) -> None:
    """What is asked for -> nodes.json."""
    asked = arguments.request
    listed = nodes_of(asked["partition"])
    out = dict.fromkeys(expand(asked["excludes"]), f"excluded by config/sites/{asked['site']}.yaml")
    kept_out = quarantine.path_of(quarantine.FOLDER, asked["site"])
    for node, entry in quarantine.entries(kept_out, datetime.now(UTC)).items():
        out[node] = f"in quarantine until {entry['until']}: {entry['reason']}"
    way = Look(
        needs=NodeNeeds.model_validate(asked["needs"]),
        cache_root=asked["cache_root"],
        prefix=look_prefix(asked["partition"], arguments.account, asked["gres"]),
        environment=client_environment(),
    )

    def look(nodes: list[str]) -> list[Visit]:
        program.LOGGER.info("looking at %s", ", ".join(nodes))
        return look_at_all(way, nodes, {})

    choice = choose(listed, asked["count"], out, look)
    for candidate in choice.candidates:
        program.LOGGER.info("node %s: %s: %s", *candidate.values())
    write_json(arguments.output, document(choice, asked, arguments.instead_of))


if __name__ == "__main__":
    parser = program.parser(__doc__)
    parser.add_argument(
        "--request", type=json.loads, required=True, help="JSON: partition, count, excludes, needs"
    )
    parser.add_argument("--account", nargs="?", help="Slurm account; none: Slurm's default")
    parser.add_argument(
        "--instead-of", nargs="*", default=[], help="nodes of the former choice that are out now"
    )
    parser.add_argument("--output", type=Path, required=True, help="nodes.json")
    program.run(main, parser.parse_args())
