"""Record where every row of the summary comes from, as an RO-Crate in the results folder."""

from __future__ import annotations

import argparse
import json
import os
import shutil
from pathlib import Path

from serve_repro import program
from serve_repro.provenance.crate import COPIES, Made, Measured, write_crate
from serve_repro.provenance.digest import secrets_of

LICENCE = "https://www.apache.org/licenses/LICENSE-2.0"


def main(arguments: argparse.Namespace) -> None:
    """Points, evaluations, tables and page -> ro-crate-metadata.json beside them."""
    outside = json.loads(arguments.outside)
    points, evaluations = (
        [Measured(path, [Path(name) for name in outside[str(path)]]) for path in paths]
        for paths in (arguments.replays, arguments.evaluations)
    )
    made = Made(arguments.made, arguments.evals)
    results: Path = arguments.output.parent
    shutil.rmtree(results / COPIES, ignore_errors=True)  # of another summary
    crate = write_crate(results, points, evaluations, made, secrets_of(os.environ), LICENCE)
    program.LOGGER.info("%s: %d entities", arguments.output, len(crate.get_entities()))


if __name__ == "__main__":
    parser = program.parser(__doc__)
    parser.add_argument("--replays", type=Path, nargs="+", required=True, help="replay.json files")
    parser.add_argument("--evaluations", type=Path, nargs="*", default=[], help="eval.json files")
    parser.add_argument("--evals", type=Path, nargs="*", default=[], help="evals.csv, if there is one")
    parser.add_argument("--outside", required=True, help="JSON: {result: its inputs elsewhere}")
    parser.add_argument("--made", type=Path, nargs="+", required=True, help="tables, pictures, page")
    parser.add_argument("--output", type=Path, required=True, help="ro-crate-metadata.json")
    program.run(main, parser.parse_args())
