"""Draw one picture of summary.csv: throughput against interactivity, or all by concurrency."""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd

from serve_repro import program
from serve_repro.draw import concurrency, interactivity
from serve_repro.recipe.load import load
from serve_repro.recipe.published import Published

PICTURES = {
    "throughput_against_interactivity": interactivity.draw,
    "by_concurrency": concurrency.draw,
}


def main(arguments: argparse.Namespace) -> None:
    """summary.csv -> the picture in each wanted format."""
    table = pd.read_csv(arguments.summary)
    published = [load(path, Published) for path in arguments.published]
    for target in arguments.outputs:
        PICTURES[arguments.picture](table, published, target)
        program.LOGGER.info("%s", target)


if __name__ == "__main__":
    parser = program.parser(__doc__)
    parser.add_argument("--picture", choices=sorted(PICTURES), required=True, help="which picture")
    parser.add_argument("--summary", type=Path, required=True, help="summary.csv")
    parser.add_argument("--published", type=Path, nargs="*", default=[], help="config/published files")
    parser.add_argument("--outputs", type=Path, nargs="+", required=True, help=".svg or .png files")
    program.run(main, parser.parse_args())
