"""Gather the points into results/summary.csv: one row a point, computed from its artifacts."""

from __future__ import annotations

import argparse
from pathlib import Path

from serve_repro import program
from serve_repro.documents import write_text
from serve_repro.table.rows import summary


def main(arguments: argparse.Namespace) -> None:
    """Points -> summary.csv."""
    table = summary(arguments.replays)
    write_text(arguments.output, table.to_csv(index=False))
    program.LOGGER.info("%s: %d points", arguments.output, len(table))


if __name__ == "__main__":
    parser = program.parser(__doc__)
    parser.add_argument("--replays", type=Path, nargs="+", required=True, help="replay.json files")
    parser.add_argument("--output", type=Path, required=True, help="summary.csv")
    program.run(main, parser.parse_args())
