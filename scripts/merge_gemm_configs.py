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
    if len(arguments.gpu) not in (0, 2):
        raise UserError("--gpu needs two words, or none", found=arguments.gpu)
    target = Target(*arguments.gpu) if arguments.gpu else None
    base = [table for path in arguments.base for table in _tables(path)]
    merged = merge(base, arguments.extra, target)
    text = io.StringIO()
    writer = csv.DictWriter(text, merged.columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(merged.rows)
    write_text(arguments.output, text.getvalue())
    write_json(arguments.report, merged.report)
    counts = {name: len(merged.report[name]) for name in ("added", "replaced", "conflicting", "dropped")}
    program.LOGGER.info("%s: %d rows, %s", arguments.output, len(merged.rows), counts)


def _tables(path: Path) -> list[Path]:
    """A table, or all those of a folder."""
    found = sorted(path.rglob("*.csv")) if path.is_dir() else [path]
    if not found or not all(table.is_file() for table in found):
        raise UserError("there is no table here", where=str(path), expected="a CSV file of aiter's")
    return found


if __name__ == "__main__":
    parser = program.parser(__doc__)
    parser.add_argument(
        "--base", type=Path, nargs="+", required=True, help="the image's tables, or their folder"
    )
    parser.add_argument("--extra", type=Path, nargs="+", required=True, help="the recipe's; they win")
    # May stand without a value: a recipe that keeps every GPU's rows leaves it empty.
    parser.add_argument(
        "--gpu", nargs="*", default=[], metavar="WORD", help="keep one GPU's rows only: gfx950 256"
    )
    parser.add_argument("--output", type=Path, required=True, help="the merged table")
    parser.add_argument("--report", type=Path, required=True, help="what became of every row, as JSON")
    program.run(main, parser.parse_args())
