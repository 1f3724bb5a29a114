"""Measured against published: what is compared at all, and what each deviation is called."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from serve_repro.errors import UserError
from serve_repro.recipe.load import load, parse
from serve_repro.recipe.published import Published
from serve_repro.recipe.recipe import Recipe
from serve_repro.table.rows import row
from serve_repro.table.verdict import COLUMNS, T_975, verdicts

from .attempts import write_point

BASE = Path(__file__).parents[2]
FILES = sorted((BASE / "config/published").glob("*.yaml"))
GOOD: dict[str, Any] = {
    "name": "theirs",
    "title": "theirs",
    "url": "https://example.org/1",
    "commit": None,
    "recipe": "big",
    "note": "",
    "conditions": {"gpus": 16, "validity": "submission"},
    "bands": {"reproduced_percent": 5, "close_percent": 10},
    "values": [{"concurrency": 16, "metric": "ttft_p50_ms", "value": 1000}],
}


def compared(*measured: float | None, **changes: Any) -> dict[str, Any]:
    """The verdict on runs that measured so much at the published point."""
    rows = [
        {"recipe": "big", "concurrency": 16, "gpus": 16, "validity": "submission", "ttft_p50_ms": value}
        | changes
        for value in measured
    ]
    summary = pd.DataFrame(rows, columns=["recipe", "concurrency", "gpus", "validity", "ttft_p50_ms"])
    (found,) = verdicts(summary, [parse(GOOD, Published, "here")]).to_dict("records")
    return {str(name): value for name, value in found.items()}


@pytest.mark.parametrize(
    ("measured", "verdict"),
    [
        (1000, "reproduced"),
        (1050, "reproduced"),
        (950, "reproduced"),
        (1050.1, "close"),
        (949.9, "close"),
        (1100, "close"),
        (900, "close"),
        (1100.1, "not reproduced"),
        (10, "not reproduced"),
    ],
)
def test_one_run_is_judged_by_its_value_and_says_so(measured: float, verdict: str) -> None:
    found = compared(measured)
    assert found["verdict"] == verdict
    assert found["why"] == "one run: its spread is not known"
    assert found["deviation_percent"] == pytest.approx((measured - 1000) / 10, abs=1e-3)


def test_repeats_are_judged_by_the_interval_of_their_mean() -> None:
    found = compared(1000, 1010, 1005)
    assert (found["verdict"], found["n"], found["measured"]) == ("reproduced", 3, 1005)
    assert found["low"] == pytest.approx(1005 - 4.303 * 5 / 3**0.5)
    assert found["cv_percent"] == pytest.approx(0.498, abs=1e-3)


@pytest.mark.parametrize("measured", [(1045, 1055), (900, 1100), (1000, 1200, 1100)])
def test_an_interval_over_a_bands_edge_decides_nothing(measured: tuple[float, ...]) -> None:
    assert compared(*measured)["verdict"] == "undecided"


def test_repeats_that_are_all_far_off_are_not_reproduced() -> None:
    assert compared(500, 501, 502)["verdict"] == "not reproduced"


def test_what_is_missing_never_counts_as_reproduced() -> None:
    assert compared()["verdict"] == "missing"
    assert compared(None)["verdict"] == "missing"
    assert compared(1000, None)["verdict"] == "missing"
    assert compared(1000, recipe="other")["verdict"] == "missing"
    assert compared(1000, concurrency=8)["verdict"] == "missing"


@pytest.mark.parametrize(("runs", "verdict"), [(0, "missing"), (2, "missing"), (3, "reproduced")])
def test_a_missing_repeat_is_never_made_up_for_by_the_others(runs: int, verdict: str) -> None:
    point = {"recipe": "big", "concurrency": 16, "gpus": 16, "validity": "submission"}
    rows = [point | {"repeat": run + 1, "ttft_p50_ms": 1000.0 + run} for run in range(runs)]
    summary = pd.DataFrame(rows, columns=[*point, "repeat", "ttft_p50_ms"])
    (found,) = verdicts(summary, [parse(GOOD, Published, "here")], repeats=3).to_dict("records")
    assert found["verdict"] == verdict
    assert runs != 2 or found["why"] == "2 of 3 runs are in the summary"


def test_a_smoke_run_is_never_compared() -> None:
    found = compared(1000, validity="smoke")
    assert pd.isna(found["measured"])
    assert found["why"] == "validity is smoke, published with submission"
    assert found["verdict"] == "not comparable"


@pytest.mark.parametrize("conditions", [{}, {"gpus": 16}, {"validity": "smoke"}])
def test_no_publication_can_ask_for_smoke_runs(conditions: dict[str, Any]) -> None:
    publication = parse(GOOD | {"conditions": conditions}, Published, "here")
    point = {"recipe": "big", "concurrency": 16, "gpus": 16, "ttft_p50_ms": 1000}
    for told in ({"validity": "smoke"}, {}):
        (found,) = verdicts(pd.DataFrame([point | told]), [publication]).to_dict("records")
        assert found["verdict"] == "not comparable"


def test_every_difference_is_listed() -> None:
    found = compared(1000, validity="smoke", gpus=8)
    assert found["why"] == "gpus is 8, published with 16; validity is smoke, published with submission"


def test_without_published_values_the_table_has_a_heading_and_no_row() -> None:
    empty = verdicts(pd.DataFrame({"recipe": ["big"]}), [])
    assert tuple(empty.columns) == COLUMNS
    assert empty.empty


def test_quantiles_fall() -> None:
    assert len(T_975) == 30
    assert list(T_975) == sorted(T_975, reverse=True)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_shipped_values_fit_their_recipe_and_the_summarys_columns(path: Path, tmp_path: Path) -> None:
    published = load(path, Published)
    recipe = load(BASE / f"config/recipes/{published.recipe}.yaml", Recipe)
    columns = row(write_point(tmp_path)[0])
    assert set(published.conditions) <= set(columns)
    assert published.conditions["window_s"] == recipe.replay.duration_s
    for value in published.values:
        assert value.concurrency in recipe.concurrencies
        assert value.metric in columns


@pytest.mark.parametrize(
    ("bands", "told"),
    [
        ({"reproduced_percent": 10, "close_percent": 5}, "below close_percent"),
        ({"reproduced_percent": 0, "close_percent": 5}, "above 0"),
    ],
)
def test_bands_must_be_in_order(bands: dict[str, float], told: str) -> None:
    with pytest.raises(UserError, match=told):
        parse(GOOD | {"bands": bands}, Published, "here")


def test_a_published_zero_is_refused() -> None:
    zero = [{"concurrency": 16, "metric": "ttft_p50_ms", "value": 0}]
    with pytest.raises(UserError, match="value must be above 0"):
        parse(GOOD | {"values": zero}, Published, "here")
