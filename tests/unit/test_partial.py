"""summary.partial.csv: no point of a run is missing from it, and none has a number it did not earn."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from serve_repro.documents import write_json
from serve_repro.table.partial import PARTIAL, write_partial

POINTS = [f"results/tiny/conc{level}/replay.json" for level in (1, 2)]
FAILED = {
    "status": "invalid",
    "reason": "errors fail: 9 failed",
    "site": "laptop",
    "validity": "smoke",
    "accelerator": "cpu",
    "started": "2026-12-01T09:00:00+00:00",
    "world_size": 2,
    "nodes": ["n0", "n1"],
    "gates": [{"outcome": "pass"}, {"outcome": "fail"}],
}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def put_attempt(name: str, content: dict[str, Any] | None) -> None:
    folder = Path(POINTS[0]).parent / "attempts" / name
    folder.mkdir(parents=True)
    if content is not None:
        write_json(folder / "point.json", content)


def rows() -> list[dict[str, str]]:
    write_partial(POINTS)
    with PARTIAL.open(encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def test_a_point_without_an_attempt_is_not_measured() -> None:
    assert [(row["concurrency"], row["status"]) for row in rows()] == [
        ("1", "not measured"),
        ("2", "not measured"),
    ]


def test_the_newest_attempt_tells_status_reason_and_evidence() -> None:
    put_attempt("20260101T000000Z", FAILED | {"status": "failed", "reason": "an older one"})
    put_attempt("20260102T000000Z", FAILED)
    first = rows()[0]
    assert first["status"] == "invalid"
    assert first["reason"] == "errors fail: 9 failed"
    assert first["nodes"] == "n0 n1"
    assert (first["gates_passed"], first["gates_total"]) == ("1", "2")
    assert first["attempt"].endswith("20260102T000000Z")
    assert not [name for name in first if "tput" in name]


def test_an_attempt_that_was_killed_is_lost_though_an_older_one_told_its_reason() -> None:
    put_attempt("20260101T000000Z", FAILED)
    put_attempt("20260102T000000Z", None)
    assert rows()[0]["status"] == "lost"


def test_an_older_valid_attempt_is_no_result() -> None:
    put_attempt("20260101T000000Z", FAILED | {"status": "valid", "reason": ""})
    assert rows()[0]["status"] == "not measured"


def test_a_repeat_has_its_own_row_and_its_own_reason() -> None:
    put_attempt("20260101T000000Z", FAILED)
    write_partial([POINTS[0], "results/tiny/conc1/rep2/replay.json"])
    with PARTIAL.open(encoding="utf-8") as stream:
        told = [(row["concurrency"], row["repeat"], row["status"]) for row in csv.DictReader(stream)]
    assert told == [("1", "1", "invalid"), ("1", "2", "not measured")]


def test_a_result_of_an_earlier_version_says_so_and_has_no_number() -> None:
    path = Path(POINTS[0])
    path.parent.mkdir(parents=True)
    write_json(path, FAILED | {"status": "valid"})
    first = rows()[0]
    assert first["status"] == "damaged"
    assert "was written by an earlier version: it has no" in first["reason"]
    assert "window_s" in first["reason"]


def test_a_damaged_result_costs_its_own_row_only() -> None:
    path = Path(POINTS[0])
    path.parent.mkdir(parents=True)
    path.write_text("{", encoding="utf-8")
    assert [row["status"] for row in rows()] == ["damaged", "not measured"]
