"""What the workflow says at its end: what it made, or which point failed and where to look."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from serve_repro.documents import write_json
from serve_repro.messages import made_what, what_failed

EVALS = ["results/tiny/eval/gsm8k/eval.json"]
POINTS = [f"results/tiny/conc{level}/replay.json" for level in (1, 2)]
ROW = {
    "recipe": "tiny",
    "concurrency": "1",
    "repeat": "1",
    "status": "valid",
    "validity": "smoke",
    "requests": "21",
    "total_tput_tok_s_gpu": "1514.52734",
    "interactivity_p50_tok_s_user": "84.6",
    "ttft_p50_ms": "",
    "itl_p50_ms": "11.81935",
    "nodes": "localhost",
}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Messages speak of the folder that the workflow runs in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def put_summary(*rows: dict[str, str]) -> None:
    Path("results/tiny").mkdir(parents=True)
    with Path("results/summary.csv").open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, list(ROW))
        writer.writeheader()
        writer.writerows(rows)


def put_attempt(point: str, name: str, **content: Any) -> None:
    write_json(Path(point).parent / "attempts" / name / "point.json", content)


def test_without_a_summary_there_is_nothing_to_tell() -> None:
    assert made_what(POINTS, []) == ""


def test_the_table_is_told_with_rounded_numbers_under_its_headings() -> None:
    put_summary(ROW, ROW | {"concurrency": "12", "requests": "345"})
    lines = made_what(POINTS, []).splitlines()
    assert lines[1].split("  ")[0] == "recipe"
    assert "total tok/s/GPU" in lines[1]
    assert "1,514.5" in lines[2]
    assert "1514.52734" not in lines[2]
    assert " 21 " in lines[2]
    assert " 345 " in lines[3]
    assert lines[1].index("requests") == lines[2].index("21") == lines[3].index("345")


def test_repeats_are_told_apart_where_there_are_some() -> None:
    put_summary(ROW, ROW | {"repeat": "2"})
    heading, first, second = made_what(POINTS, []).splitlines()[1:4]
    column = heading.index("run ")
    assert (first[column], second[column]) == ("1", "2")


def test_only_files_that_were_made_are_named() -> None:
    put_summary(ROW)
    told = made_what(POINTS, [])
    assert "results/summary.csv" in told
    assert "results/report.html" not in told
    Path("results/report.html").touch()
    assert "results/report.html" in made_what(POINTS, [])
    assert any(line.split()[0] == "results/tiny" for line in told.splitlines() if line.strip())


def test_a_failed_point_is_told_with_its_reason_and_its_evidence() -> None:
    put_attempt(POINTS[0], "20260101T000000Z", status="failed", reason="an older reason")
    put_attempt(POINTS[0], "20260102T000000Z", status="failed", reason="rank 1 ended by exit code 3")
    told = what_failed(POINTS, [])
    assert "results/tiny/conc1: failed: rank 1 ended by exit code 3" in told
    assert "evidence: results/tiny/conc1/attempts/20260102T000000Z" in told
    assert "an older reason" not in told
    assert "conc2" not in told


def test_a_point_with_a_result_has_not_failed() -> None:
    put_attempt(POINTS[0], "20260101T000000Z", status="failed", reason="an older reason")
    write_json(Path(POINTS[0]), {})
    assert "conc1" not in what_failed(POINTS, [])


def test_a_valid_last_attempt_is_an_older_run_and_no_reason() -> None:
    """A forced point whose new run ended before its attempt began."""
    put_attempt(POINTS[0], "20260101T000000Z", status="valid", reason="")
    assert "conc1" not in what_failed(POINTS, [])


def test_it_always_says_that_finished_points_are_kept() -> None:
    assert "Finished points are kept" in what_failed(POINTS, [])


def test_an_attempt_that_was_killed_before_it_could_write_is_not_told_by_an_older_reason() -> None:
    (Path(POINTS[0]).parent / "attempts/20260103T000000Z").mkdir(parents=True)
    put_attempt(POINTS[0], "20260102T000000Z", status="invalid", reason="tokens fail")
    told = what_failed(POINTS, [])
    assert "results/tiny/conc1: lost: its launcher has not said why" in told
    assert "evidence: results/tiny/conc1/attempts/20260103T000000Z" in told
    assert "tokens fail" not in told


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ("tiny,gsm8k,passed,", "accuracy: 1 of 1 evaluations passed"),
        (
            "tiny,gsm8k,failed,x is below 0.9",
            "accuracy: 0 of 1 evaluations passed; tiny gsm8k: x is below 0.9",
        ),
        ("other,gsm8k,passed,", "accuracy: not evaluated in this run; results/evals.csv is of another"),
        (None, "accuracy: not evaluated in this run"),
    ],
)
def test_accuracy_is_told_in_one_line_where_a_recipe_has_an_evaluation(
    row: str | None, told: str
) -> None:
    put_summary(ROW)
    if row is not None:
        Path("results/evals.csv").write_text(f"recipe,task,outcome,reason\n{row}\n", encoding="utf-8")
    assert told in made_what(POINTS, EVALS).splitlines()
    assert "accuracy" not in made_what(POINTS, [])


def test_an_evaluation_without_a_result_is_told_with_its_reason() -> None:
    put_attempt(EVALS[0], "20260101T000000Z", status="failed", reason="rank 0 ended by exit code 3")
    told = what_failed(POINTS, EVALS)
    assert "results/tiny/eval/gsm8k: failed: rank 0 ended by exit code 3" in told
