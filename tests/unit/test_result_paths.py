"""Where a run of a point stands: the first where it always stood, further ones below it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from serve_repro.result_paths import REPEAT, Run, replay_path, run_of


@pytest.mark.parametrize(
    ("run", "path"),
    [
        (Run("tiny", 16, 1), "results/tiny/conc16/replay.json"),
        (Run("tiny", 16, 2), "results/tiny/conc16/rep2/replay.json"),
        (Run("rep3", 4, 12), "results/rep3/conc4/rep12/replay.json"),
    ],
)
def test_a_path_names_its_run(run: Run, path: str) -> None:
    assert replay_path(run) == path
    assert run_of(Path(path)) == run


@pytest.mark.parametrize("part", ["/rep0", "/rep1", "/rep01", "/rep", "rep2", "/rep2/"])
def test_the_first_run_has_one_place_only(part: str) -> None:
    assert re.fullmatch(REPEAT, "") and re.fullmatch(REPEAT, "/rep10")
    assert not re.fullmatch(REPEAT, part)
