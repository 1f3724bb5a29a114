"""Write results/report.html: one page that needs nothing else to be read."""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd

from serve_repro import program
from serve_repro.documents import write_text
from serve_repro.recipe.load import load
from serve_repro.recipe.published import Published
from serve_repro.table.report import Evaluations, render


def main(arguments: argparse.Namespace) -> None:
    """Summary, verdict, plots and points -> report.html."""
    table = pd.read_csv(arguments.summary)
    # A value that is missing has no runs: without a type the others would have 3.0.
    verdict = pd.read_csv(arguments.verdict, dtype={"n": "Int64"})
    published = [load(path, Published) for path in arguments.published]
    points = dict(zip(arguments.replays, arguments.courses, strict=True))
    evaluations = Evaluations([pd.read_csv(path) for path in arguments.evals], arguments.evaluations)
    page = render(table, verdict, published, arguments.plots, points, evaluations)
    write_text(arguments.output, page)
    program.LOGGER.info("%s", arguments.output)


if __name__ == "__main__":
    parser = program.parser(__doc__)
    parser.add_argument("--summary", type=Path, required=True, help="summary.csv")
    parser.add_argument("--verdict", type=Path, required=True, help="verdict.csv")
    parser.add_argument("--published", type=Path, nargs="*", default=[], help="config/published files")
    parser.add_argument("--plots", type=Path, nargs="+", required=True, help="SVGs of the table")
    parser.add_argument("--replays", type=Path, nargs="+", required=True, help="replay.json files")
    parser.add_argument("--courses", type=Path, nargs="+", required=True, help="an SVG for each point")
    parser.add_argument("--evals", type=Path, nargs="*", default=[], help="evals.csv, if there is one")
    parser.add_argument("--evaluations", type=Path, nargs="*", default=[], help="eval.json files")
    parser.add_argument("--output", type=Path, required=True, help="report.html")
    program.run(main, parser.parse_args())
