"""Draw throughput per accelerator against interactivity from summary.csv."""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd

from serve_repro import program
from serve_repro.table.plot import throughput_against_interactivity


def main(arguments: argparse.Namespace) -> None:
    """summary.csv -> one picture a wanted format."""
    table = pd.read_csv(arguments.summary)
    for target in arguments.outputs:
        throughput_against_interactivity(table, target)
        program.LOGGER.info("%s", target)


if __name__ == "__main__":
    parser = program.parser(__doc__)
    parser.add_argument("--summary", type=Path, required=True, help="summary.csv")
    parser.add_argument("--outputs", type=Path, nargs="+", required=True, help=".svg or .png files")
    program.run(main, parser.parse_args())
