"""Draw the pictures of summary.csv: throughput against interactivity, and all by concurrency."""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd

from serve_repro import program
from serve_repro.draw import concurrency, interactivity
from serve_repro.recipe.load import load
from serve_repro.recipe.published import Published


def main(arguments: argparse.Namespace) -> None:
    """summary.csv -> one picture a wanted format."""
    table = pd.read_csv(arguments.summary)
    published = [load(path, Published) for path in arguments.published]
    for target in arguments.interactivity:
        interactivity.draw(table, published, target)
        program.LOGGER.info("%s", target)
    for target in arguments.concurrency:
        concurrency.draw(table, published, target)
        program.LOGGER.info("%s", target)


if __name__ == "__main__":
    parser = program.parser(__doc__)
    parser.add_argument("--summary", type=Path, required=True, help="summary.csv")
    parser.add_argument("--published", type=Path, nargs="*", default=[], help="config/published files")
    parser.add_argument(
        "--interactivity", type=Path, nargs="+", required=True, help=".svg or .png files"
    )
    parser.add_argument("--concurrency", type=Path, nargs="+", required=True, help=".svg or .png files")
    program.run(main, parser.parse_args())
