"""aiter's tuned GEMM tables: the image's own rows, with a recipe's rows over them.

aiter looks a row up by ten columns. A table that is merged by fewer of them loses rows of this GPU
to rows of another; one with "0" beside "False" is read as text, and then no look-up matches.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from serve_repro.errors import UserError

KEY = ("gfx", "cu_num", "M", "N", "K", "bias", "dtype", "outdtype", "scaleAB", "bpreshuffle")
"""The columns by which aiter finds a row."""

TABLE = "gemm/bf16_tuned_gemm.csv"
"""The merged table, in the folder of a built patch set."""

TABLE_VARIABLE = "AITER_CONFIG_GEMM_BF16"
"""What aiter reads the table's place from."""

TABLES = ["aiter/configs/bf16_tuned_gemm.csv", "aiter/configs/model_configs/*_bf16_tuned_gemm.csv"]
"""The image's own tables (InferenceX PR #2678 merges the same ones)."""

BOOLEANS = ("bias", "scaleAB", "bpreshuffle")
_TRUTH = {
    **dict.fromkeys(("1", "true", "t", "yes", "y"), "True"),
    **dict.fromkeys(("0", "false", "f", "no", "n"), "False"),
}

Key = tuple[str, ...]


class Row(NamedTuple):
    """One tuned shape, and where it stood."""

    values: dict[str, str]
    place: str
    """file:line."""

    @property
    def key(self) -> Key:
        """What aiter looks for."""
        return tuple(self.values[name] for name in KEY)


class Target(NamedTuple):
    """The GPU whose rows are kept."""

    gfx: str
    cu_num: str


class Merged(NamedTuple):
    """A merged table and what became of every row."""

    columns: list[str]
    rows: list[dict[str, str]]
    """Base order, replaced rows in their old places, added rows behind."""
    report: dict[str, Any]


def read_table(path: Path, dropped: list[dict[str, str]]) -> list[Row]:
    """The rows of one file. Its header may stand on any line; every row is read by it.

    Args:
        path: a CSV file of aiter's.
        dropped: gets {place, reason} of each line that is no row.

    Raises:
        UserError: no header, a row of another width, or a truth value that is none.
    """
    with path.open(encoding="utf-8", newline="") as stream:
        lines = [(number, line) for number, line in enumerate(csv.reader(stream), 1) if line]
    headers = [line for _, line in lines if _is_header(line)]
    if not headers:
        raise UserError(
            "this table has no header", where=str(path), expected=f"a line with {', '.join(KEY)}"
        )
    header = [name.strip() for name in headers[0]]
    if any([name.strip() for name in other] != header for other in headers[1:]):
        raise UserError("two headers of this table differ", where=str(path))
    return list(_rows(path, header, lines, dropped))


def _is_header(line: list[str]) -> bool:
    return set(KEY) <= {name.strip() for name in line}


def _rows(
    path: Path,
    header: list[str],
    lines: list[tuple[int, list[str]]],
    dropped: list[dict[str, str]],
) -> Iterator[Row]:
    first = True
    for number, line in lines:
        place = f"{path.name}:{number}"
        if line[0].lstrip().startswith("#"):
            dropped.append({"place": place, "reason": "comment"})
        elif _is_header(line):
            if not first:
                dropped.append({"place": place, "reason": "repeated header"})
            first = False
        elif len(line) != len(header):
            raise UserError(
                "this row has another number of fields than the header",
                where=f"{path}:{number}",
                expected=len(header),
                found=len(line),
            )
        else:
            values = dict(zip(header, (value.strip() for value in line), strict=True))
            for name in BOOLEANS:
                values[name] = _truth(values[name], name, f"{path}:{number}")
            yield Row(values, place)


def _truth(text: str, column: str, where: str) -> str:
    if text.lower() not in _TRUTH:
        raise UserError(
            f"{column} is neither true nor false", where=where, expected="True or False", found=text
        )
    return _TRUTH[text.lower()]


def merge(base: list[Path], extra: list[Path], target: Target | None = None) -> Merged:
    """Lay the rows of `extra` over those of `base`; of one key, the later file's row counts.

    Args:
        base: the image's tables.
        extra: the recipe's tables; they win.
        target: keep this GPU's rows only; None: keep all.

    Raises:
        UserError: a file that is no table, an extra file without a row, or files that differ in columns.
    """
    dropped: list[dict[str, str]] = []
    added: list[str] = []
    replaced: list[dict[str, str]] = []
    conflicting: list[dict[str, str]] = []
    table: dict[Key, Row] = {}
    columns: list[str] = []
    for path in [*base, *extra]:
        rows = read_table(path, dropped)
        if path in extra and not rows:
            raise UserError("this table has a header and no row", where=str(path))
        for row in rows:
            columns = columns or list(row.values)
            if set(row.values) != set(columns):
                raise UserError(
                    "the tables differ in their columns",
                    where=str(path),
                    expected=columns,
                    found=list(row.values),
                )
            if target is not None and (row.values["gfx"], row.values["cu_num"]) != target:
                told = f"for {row.values['gfx']} with {row.values['cu_num']} CUs"
                dropped.append({"place": row.place, "reason": told})
                continue
            before = table.get(row.key)
            table[row.key] = row
            if before is None:
                added += [row.place] if path in extra else []
            elif before.values != row.values:
                change = {"place": row.place, "over": before.place}
                (replaced if path in extra else conflicting).append(change)
    report = {
        "rows": len(table),
        "key": list(KEY),
        "target": None if target is None else target._asdict(),
        "added": added,
        "replaced": replaced,
        "conflicting": conflicting,
        "dropped": dropped,
    }
    return Merged(columns, [row.values for row in table.values()], report)
