"""A recipe that measures something else than before says so in docs/perf-changelog.yaml."""

from __future__ import annotations

from datetime import date
from itertools import pairwise
from pathlib import Path

import pytest

from serve_repro.recipe.changelog import Changelog, Entry, identity
from serve_repro.recipe.load import load
from serve_repro.recipe.recipe import KvLayout, Recipe

BASE = Path(__file__).parents[2]
CHANGELOG = load(BASE / "docs/perf-changelog.yaml", Changelog)
RECIPES = sorted((BASE / "config/recipes").glob("*.yaml"))
TINY = load(BASE / "config/recipes/tiny-cpu-tp1pp2.yaml", Recipe)


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_each_recipes_newest_entry_has_its_identity(path: Path) -> None:
    found = identity(load(path, Recipe))
    entry = CHANGELOG.current(path.stem)
    assert entry is not None and entry.identity == found, (
        f"{path.stem} measures something that docs/perf-changelog.yaml does not know: "
        f"add an entry at its end with identity: {found}"
    )


def test_entries_stand_in_the_order_of_their_days_and_are_no_repeats() -> None:
    days = [entry.date for entry in CHANGELOG.entries]
    assert days == sorted(days)
    for name in {entry.recipe for entry in CHANGELOG.entries}:
        hashes = [entry.identity for entry in CHANGELOG.entries if entry.recipe == name]
        assert all(one != other for one, other in pairwise(hashes))


def test_words_deadlines_and_expectations_are_no_part_of_the_identity() -> None:
    slower = TINY.deadlines.model_copy(update={"boot_limit_s": 1.0})
    same = TINY.model_copy(update={"title": "other words", "deadlines": slower, "concurrencies": [1]})
    assert identity(same) == identity(TINY)
    assert TINY.kv_offload is not None
    layout = KvLayout(tensor_block_bytes=1, tensors_by_stage=[1, 1])
    expecting = TINY.kv_offload.model_copy(update={"layout": layout})
    assert identity(TINY.model_copy(update={"kv_offload": expecting})) == identity(TINY)


@pytest.mark.parametrize(
    "change", [{"patches": []}, {"accelerator": "mi355x"}, {"kv_offload": None}], ids=str
)
def test_what_is_measured_is_part_of_it(change: dict[str, object]) -> None:
    assert identity(TINY.model_copy(update=change)) != identity(TINY)


def test_the_newest_entry_counts() -> None:
    entries = [
        Entry(recipe="one", identity=letter * 64, date=date(2026, 1, 1), why="") for letter in "ab"
    ]
    log = Changelog(entries=entries)
    newest = log.current("one")
    assert newest is not None and newest.identity == "b" * 64
    assert log.current("two") is None
