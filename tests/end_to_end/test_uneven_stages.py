"""A published crash on real vLLM: offload blocks that a later stage lacks, with the cap and without."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .conftest import assert_nothing_left, checkout_into, read

pytestmark = pytest.mark.nightly

SCHEDULER = re.compile(r"SimpleCPUOffloadScheduler: Allocating (\d+) offload blocks")
CAPPED, UNCAPPED = "tiny-cpu-uneven", "tiny-cpu-uneven-uncapped"


def scheduler_blocks(attempt: Path) -> list[int]:
    """What rank 0's scheduler said it numbers."""
    text = (attempt / "rank0/server.log").read_text(encoding="utf-8")
    return [int(match[1]) for match in SCHEDULER.finditer(text)]


def test_the_cap_makes_the_difference(
    environments: Path, tmp_path: Path, shared_memory_unchanged: None
) -> None:
    made = checkout_into(tmp_path / "checkout", environments)
    code, output = made.run("--profile", "local", "--configfile", "config/tiny-uneven.yaml")
    assert code != 0
    [capped], [uncapped] = ([*made.point(4, name).glob("attempts/*")] for name in (CAPPED, UNCAPPED))

    assert read(made.point(4, CAPPED) / "replay.json")["status"] == "valid"
    assert scheduler_blocks(capped) == [170]

    assert not (made.point(4, UNCAPPED) / "replay.json").exists()
    assert scheduler_blocks(uncapped) == [512]
    assert (
        "rank 1 says: a KV block id beyond a stage's buffer" in read(uncapped / "point.json")["reason"]
    )
    assert "is out of bounds" in (uncapped / "rank1/server.log").read_text(encoding="utf-8")
    assert UNCAPPED in output
    assert not (made.folder / "results/summary.csv").exists()
    for attempt in (capped, uncapped):
        assert_nothing_left(attempt)
