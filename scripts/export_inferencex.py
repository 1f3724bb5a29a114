"""Write one valid point as InferenceX's aggregate JSON."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from serve_repro import program
from serve_repro.documents import write_json
from serve_repro.inferencex.aggregate import aggregate


def main(arguments: argparse.Namespace) -> None:
    """A point and its labels -> inferencex.json."""
    found = aggregate(arguments.replay, json.loads(arguments.labels))
    write_json(arguments.output, found)
    program.LOGGER.info("%s: %d requests", arguments.output, found["num_requests_successful"])


if __name__ == "__main__":
    parser = program.parser(__doc__)
    parser.add_argument("--replay", type=Path, required=True, help="the point's replay.json")
    parser.add_argument("--labels", required=True, help="JSON: what no measurement tells of it")
    parser.add_argument("--output", type=Path, required=True, help="inferencex.json")
    program.run(main, parser.parse_args())
