"""Hold the summary against what was published; leaves results/verdict.csv, a row a published value."""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

import pandas as pd

from serve_repro import program
from serve_repro.documents import write_text
from serve_repro.recipe.load import load
from serve_repro.recipe.published import Published
from serve_repro.table.verdict import verdicts


def main(arguments: argparse.Namespace) -> None:
    """Summary and published values -> verdict.csv."""
    published = [load(path, Published) for path in arguments.published]
    table = verdicts(pd.read_csv(arguments.summary), published, arguments.repeats)
    write_text(arguments.output, table.to_csv(index=False))
    if not published:
        program.LOGGER.info("nothing is published for these recipes: nothing is compared")
    for verdict, count in Counter(table["verdict"]).items():
        program.LOGGER.info("%d published values: %s", count, verdict)


if __name__ == "__main__":
    parser = program.parser(__doc__)
    parser.add_argument("--summary", type=Path, required=True, help="summary.csv")
    parser.add_argument("--published", type=Path, nargs="*", default=[], help="config/published files")
    parser.add_argument("--repeats", type=int, default=1, help="runs that each point must have")
    parser.add_argument("--output", type=Path, required=True, help="verdict.csv")
    program.run(main, parser.parse_args())
