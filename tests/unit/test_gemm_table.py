"""Merging tuned GEMM tables: by all ten key columns, the recipe's rows over the image's."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from serve_repro.errors import UserError
from serve_repro.patches.gemm_table import KEY, Merged, Target, merge

BASE = Path(__file__).parents[2]
Write = Callable[..., Path]
HEADER = ",".join([*KEY, "libtype", "us"])


def line(
    m: int = 1, gfx: str = "gfx950", bias: str = "False", lib: str = "asm", us: str = "1.50"
) -> str:
    return f"{gfx},256,{m},64,128,{bias},bf16,bf16,False,False,{lib},{us}"


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def put(name: str, *lines: str) -> Path:
        path = tmp_path / name
        path.write_text("\n".join([*lines, ""]), encoding="utf-8")
        return path

    return put


def libraries(merged: Merged) -> list[tuple[str, str]]:
    return [(row["M"], row["libtype"]) for row in merged.rows]


def test_the_recipes_rows_win_and_keep_the_place_of_what_they_replace(write: Write) -> None:
    base = write("base.csv", HEADER, line(1), line(2))
    extra = write("extra.csv", HEADER, line(1, lib="flydsl"), line(3, lib="flydsl"))
    merged = merge([base], [extra])
    assert libraries(merged) == [("1", "flydsl"), ("2", "asm"), ("3", "flydsl")]
    assert merged.report["replaced"] == [{"place": "extra.csv:2", "over": "base.csv:2"}]
    assert merged.report["added"] == ["extra.csv:3"]


@pytest.mark.parametrize("other", [line(gfx="gfx942"), line(bias="True")])
def test_rows_that_differ_in_one_key_column_live_side_by_side(write: Write, other: str) -> None:
    merged = merge([write("base.csv", HEADER, line(), other)], [write("extra.csv", HEADER, line(9))])
    assert len(merged.rows) == 3


@pytest.mark.parametrize(
    ("text", "truth"), [("0", "False"), ("1", "True"), ("t", "True"), ("NO", "False")]
)
def test_truth_values_are_written_one_way(write: Write, text: str, truth: str) -> None:
    merged = merge([write("base.csv", HEADER, line())], [write("extra.csv", HEADER, line(2, bias=text))])
    assert merged.rows[-1]["bias"] == truth


def test_a_truth_value_that_is_none_names_its_line(write: Write) -> None:
    with pytest.raises(UserError, match=r"(?s)extra\.csv:2: bias is neither true nor false.*maybe"):
        merge([write("base.csv", HEADER, line())], [write("extra.csv", HEADER, line(bias="maybe"))])


def test_the_header_may_stand_behind_rows_and_no_row_is_lost(write: Write) -> None:
    extra = write("extra.csv", line(7), "# note,", HEADER, line(8), HEADER, line(9))
    merged = merge([write("base.csv", HEADER, line(1))], [extra])
    assert [m for m, _ in libraries(merged)] == ["1", "7", "8", "9"]
    assert [entry["reason"] for entry in merged.report["dropped"]] == ["comment", "repeated header"]


def test_columns_are_found_by_name(write: Write) -> None:
    turned = write(
        "extra.csv", ",".join(reversed(HEADER.split(","))), ",".join(reversed(line(4).split(",")))
    )
    merged = merge([write("base.csv", HEADER, line(1))], [turned])
    assert merged.rows[1]["M"] == "4"
    assert merged.columns == HEADER.split(",")


def test_conflicts_within_the_image_are_told_and_repeats_are_not(write: Write) -> None:
    base = write("base.csv", HEADER, line(1), line(1), line(1, lib="triton"))
    merged = merge([base], [write("extra.csv", HEADER, line(2))])
    assert merged.report["conflicting"] == [{"place": "base.csv:4", "over": "base.csv:3"}]
    assert merged.rows[0]["libtype"] == "triton"


def test_other_gpus_rows_are_kept_unless_one_gpu_is_named(write: Write) -> None:
    files = (
        [write("base.csv", HEADER, line(1), line(1, gfx="gfx942"))],
        [write("x.csv", HEADER, line(2))],
    )
    assert len(merge(*files).rows) == 3
    only = merge(*files, Target("gfx950", "256"))
    assert {row["gfx"] for row in only.rows} == {"gfx950"}
    assert only.report["dropped"] == [{"place": "base.csv:3", "reason": "for gfx942 with 256 CUs"}]


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ([], "no header"),
        ([line()], "no header"),
        ([HEADER], "a header and no row"),
        ([HEADER, line() + ",more"], "another number of fields"),
        ([HEADER + ",tflops", line() + ",9"], "differ in their columns"),
    ],
)
def test_a_file_that_is_no_table_is_refused(write: Write, lines: list[str], told: str) -> None:
    with pytest.raises(UserError, match=told):
        merge([write("base.csv", HEADER, line())], [write("extra.csv", *lines)])


def test_the_program_writes_table_and_report_without_touching_numbers(
    write: Write, tmp_path: Path
) -> None:
    words = ["--base", str(write("base.csv", HEADER, line(us="1.50")))]
    words += ["--extra", str(write("extra.csv", HEADER, line(2, us="0.10")))]
    words += ["--output", str(tmp_path / "merged.csv"), "--report", str(tmp_path / "report.json")]
    program = BASE / "scripts/merge_gemm_configs.py"
    subprocess.run([sys.executable, str(program), *words], check=True, capture_output=True)
    with (tmp_path / "merged.csv").open(encoding="utf-8") as stream:
        assert [row["us"] for row in csv.DictReader(stream)] == ["1.50", "0.10"]
    assert json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))["added"] == ["extra.csv:2"]


TABLES = Path(__file__).parent / "gemm_tables"
"""Made tables with the traps of the publication's own: see `test_the_traps_lose_no_row`."""


def by_three_columns(files: list[Path]) -> set[tuple[str, ...]]:
    """The keys that are left by the rule which the publication's merge follows.

    The first line of each file is skipped as its header, comments and repeated headers are left out,
    and of each (M, N, K) the last row stays.
    """
    left = {}
    for path in files:
        for text in path.read_text(encoding="utf-8").splitlines()[1:]:
            fields = text.split(",")
            if text.startswith(("#", "gfx,")) or len(fields) < 10:
                continue
            for place in (5, 8, 9):
                fields[place] = str(fields[place].lower() in ("1", "t", "true"))
            left[tuple(fields[2:5])] = tuple(fields[:10])
    return set(left.values())


def test_the_traps_lose_no_row(tmp_path: Path) -> None:
    """Truth values in several spellings, a header on line 7, dtypes and GPUs that share M, N and K."""
    image, recipe = [TABLES / "image.csv", TABLES / "image_model.csv"], [TABLES / "recipe.csv"]
    merged = merge(image, recipe)
    written = {tuple(row[name] for name in KEY) for row in merged.rows}
    # Nine rows of the image and seven of the recipe, two of which stand in place of the image's.
    assert (len(merged.rows), len(written)) == (14, 14)
    assert {row[name] for row in merged.rows for name in ("bias", "scaleAB", "bpreshuffle")} == {
        "True",
        "False",
    }
    kinds = ("added", "replaced", "conflicting", "dropped")
    assert {kind: len(merged.report[kind]) for kind in kinds} == {
        "added": 5,
        "replaced": 2,
        "conflicting": 0,
        "dropped": 2,
    }
    assert merged.report["replaced"] == [
        {"place": "recipe.csv:2", "over": "image.csv:4"},
        {"place": "recipe.csv:5", "over": "image_model.csv:2"},
    ]
    rows = {tuple(row[name] for name in KEY): row["libtype"] for row in merged.rows}
    own = ("gfx950", "256", "1024", "6288", "7168", "False", "torch.bfloat16", "torch.bfloat16")
    assert rows[(*own, "False", "False")] == "torch", "the row above the header"
    # By three columns eight of the fourteen would be lost, the row on the extra file's first line
    # and this GPU's row for 614 x 1536 x 128 with a float32 result among them.
    left = by_three_columns([*image, *recipe])
    assert left <= written
    assert len(written - left) == 8


def test_of_one_gpu_every_row_is_kept_and_each_other_one_is_told() -> None:
    image, recipe = [TABLES / "image.csv", TABLES / "image_model.csv"], [TABLES / "recipe.csv"]
    merged = merge(image, recipe, Target("gfx950", "256"))
    assert len(merged.rows) == 11
    others = [entry for entry in merged.report["dropped"] if entry["reason"].startswith("for ")]
    assert [entry["place"] for entry in others] == [
        "image.csv:3",
        "image_model.csv:3",
        "image_model.csv:6",
    ]
    told = len(merged.rows) + len(merged.report["replaced"]) + len(others)
    assert told == 9 + 7, "every row that was read is kept, replaced or told"


@pytest.mark.parametrize(("extra", "told"), [("", "no header"), (HEADER, "a header and no row")])
def test_the_program_refuses_an_extra_file_without_rows(
    write: Write, tmp_path: Path, extra: str, told: str
) -> None:
    words = ["--base", str(TABLES), "--extra", str(write("extra.csv", extra)), "--gpu"]
    words += ["--output", str(tmp_path / "merged.csv"), "--report", str(tmp_path / "report.json")]
    program = [sys.executable, str(BASE / "scripts/merge_gemm_configs.py")]
    run = subprocess.run([*program, *words], capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert told in run.stderr
    assert not (tmp_path / "merged.csv").exists()
