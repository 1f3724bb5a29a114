"""Write results/report.html: one page that needs nothing else to be read."""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd

from serve_repro import program
from serve_repro.documents import write_text
from serve_repro.table.report import render


def main(arguments: argparse.Namespace) -> None:
    """Summary, plot and points -> report.html."""
    table = pd.read_csv(arguments.summary)
    write_text(arguments.output, render(table, arguments.plot, arguments.replays))
    program.LOGGER.info("%s", arguments.output)


if __name__ == "__main__":
    parser = program.parser(__doc__)
    parser.add_argument("--summary", type=Path, required=True, help="summary.csv")
    parser.add_argument("--plot", type=Path, required=True, help="the SVG plot")
    parser.add_argument("--replays", type=Path, nargs="+", required=True, help="replay.json files")
    parser.add_argument("--output", type=Path, required=True, help="report.html")
    program.run(main, parser.parse_args())
