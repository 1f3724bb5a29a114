"""Gather accuracy evaluations into evals.csv, one row each; none of it stands in the summary."""

from __future__ import annotations

import argparse
from pathlib import Path

from serve_repro import program
from serve_repro.documents import write_text
from serve_repro.table.evals import table


def main(arguments: argparse.Namespace) -> None:
    """eval.json of each recipe -> evals.csv."""
    write_text(arguments.output, table(arguments.evals).to_csv(index=False))


if __name__ == "__main__":
    parser = program.parser(__doc__)
    parser.add_argument("--evals", type=Path, nargs="+", required=True, help="eval.json files")
    parser.add_argument("--output", type=Path, required=True, help="evals.csv")
    program.run(main, parser.parse_args())
