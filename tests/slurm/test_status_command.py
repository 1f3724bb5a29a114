"""Slurm's status command answering wrongly: no false failure, no false success, no hang."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from .conftest import SlurmCheckout, finish

_WRONG = """#!/bin/sh
# The first {times} answers are wrong, then the real command answers.
count=$(cat {counter})
echo $((count + 1)) >{counter}
if [ "$count" -lt {times} ]; then {wrong}; fi
exec {real} "$@"
"""


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param("echo 'no controller' >&2; exit 1", id="fails", marks=pytest.mark.nightly),
        pytest.param("exit 0", id="empty"),
    ],
)
def test_wrong_answers_are_outlived(again: SlurmCheckout, tmp_path: Path, wrong: str) -> None:
    real = shutil.which("squeue")
    assert real is not None
    folder, counter = tmp_path / "bin", tmp_path / "count"
    folder.mkdir()
    counter.write_text("0", encoding="utf-8")
    script = folder / "squeue"
    script.write_text(_WRONG.format(times=2, counter=counter, wrong=wrong, real=real), encoding="utf-8")
    script.chmod(0o755)
    code, output = finish(again.start(path=folder), 240)
    assert code == 0, output[-3000:]
    assert int(counter.read_text(encoding="utf-8")) > 2, "the wrong command was asked"
    assert (again.point(2) / "replay.json").is_file()
