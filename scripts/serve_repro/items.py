"""Made questions in gsm8k's record format: sums in words, the same from the same seed."""

from __future__ import annotations

import random

NAMES = ("Ada", "Bela", "Chen", "Dana", "Emre", "Fay")
THINGS = ("apples", "books", "coins", "lamps", "shells")


def make_items(items: int, seed: int) -> dict[str, list[dict[str, str]]]:
    """{train, test: records}, `items` records each, no two alike."""
    draw = random.Random(seed)
    records: dict[str, dict[str, str]] = {}
    while len(records) < 2 * items:
        record = _item(draw)
        records[record["question"]] = record
    every = list(records.values())
    return {"train": every[:items], "test": every[items:]}


def _item(draw: random.Random) -> dict[str, str]:
    first, second = draw.sample(NAMES, 2)
    thing, here, there = draw.choice(THINGS), draw.randint(2, 99), draw.randint(2, 99)
    question = f"{first} has {here} {thing}, {second} has {there}. How many do they have together?"
    return {"question": question, "answer": f"{here} + {there} = {here + there}\n#### {here + there}"}
