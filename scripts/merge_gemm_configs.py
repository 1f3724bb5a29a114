"""Merge a recipe's tuned GEMM rows over an image's tables, and report what became of every row."""

from __future__ import annotations

import argparse
import csv
import io
from pathlib import Path

from serve_repro import program
from serve_repro.documents import write_json, write_text
from serve_repro.errors import UserError
from serve_repro.patches.gemm_table import Target, merge


def main(arguments: argparse.Namespace) -> None:
    """Tables -> one table and a report."""
    if (arguments.gfx is None) != (arguments.cu_num is None):
        raise UserError("--gfx and --cu-num name one GPU together", expected="both or none")
    target = None if arguments.gfx is None else Target(arguments.gfx, arguments.cu_num)
    merged = merge(arguments.base, arguments.extra, target)
    text = io.StringIO()
    writer = csv.DictWriter(text, merged.columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(merged.rows)
    write_text(arguments.output, text.getvalue())
    write_json(arguments.report, merged.report)
    counts = {name: len(merged.report[name]) for name in ("added", "replaced", "conflicting", "dropped")}
    program.LOGGER.info("%s: %d rows, %s", arguments.output, len(merged.rows), counts)


if __name__ == "__main__":
    parser = program.parser(__doc__)
    parser.add_argument("--base", type=Path, nargs="+", required=True, help="the image's tables")
    parser.add_argument("--extra", type=Path, nargs="+", required=True, help="the recipe's; they win")
    parser.add_argument("--gfx", help="keep this architecture's rows only, such as gfx950")
    parser.add_argument("--cu-num", help="and of these only the ones for so many compute units")
    parser.add_argument("--output", type=Path, required=True, help="the merged table")
    parser.add_argument("--report", type=Path, required=True, help="what became of every row, as JSON")
    program.run(main, parser.parse_args())
