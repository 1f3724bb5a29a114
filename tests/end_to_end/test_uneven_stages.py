"""A published crash on real vLLM: offload blocks that a later stage lacks, with the cap and without."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from .conftest import assert_nothing_left, checkout_into, read

pytestmark = pytest.mark.nightly

SCHEDULER = re.compile(r"SimpleCPUOffloadScheduler: Allocating (\d+) (?:offload|CPU) blocks")


def scheduler_blocks(attempt: Path) -> list[int]:
    """What rank 0's scheduler said it numbers."""
    text = (attempt / "rank0/server.log").read_text(encoding="utf-8")
    return [int(match[1]) for match in SCHEDULER.finditer(text)]


@pytest.mark.parametrize("release", ["", "-0.27.1"], ids=["0.32.0", "0.27.1"])
def test_the_cap_makes_the_difference(
    release: str, environments: Path, tmp_path: Path, shared_memory_unchanged: None
) -> None:
    capped_name, uncapped_name = f"tiny-cpu-uneven{release}", f"tiny-cpu-uneven-uncapped{release}"
    made = checkout_into(tmp_path / "checkout", environments)
    code, output = made.run("--profile", "local", "--configfile", f"config/tiny-uneven{release}.yaml")
    assert code != 0
    [capped], [uncapped] = (
        [*made.point(4, name).glob("attempts/*")] for name in (capped_name, uncapped_name)
    )

    assert read(made.point(4, capped_name) / "replay.json")["status"] == "valid"
    assert scheduler_blocks(capped) == [170]
    [blocks] = [gate for gate in read(capped / "point.json")["gates"] if gate["gate"] == "kv_blocks"]
    assert blocks["seen"] == (
        "scheduler hands out 170 host blocks; rank 0 has 512, rank 1 has 170; "
        "the plan derives [512, 170] by stage"
    )

    assert not (made.point(4, uncapped_name) / "replay.json").exists()
    assert scheduler_blocks(uncapped) == [512]
    assert (
        "rank 1 says: a KV block id beyond a stage's buffer" in read(uncapped / "point.json")["reason"]
    )
    assert "is out of bounds" in (uncapped / "rank1/server.log").read_text(encoding="utf-8")
    [ranges] = (uncapped / "rank1").glob("block_ranges_*.jsonl")
    last = json.loads(ranges.read_text(encoding="utf-8").splitlines()[-1])
    assert last["beyond"] == ["host"]
    assert last["host"][1] >= last["pools"]["host"] == 170
    assert uncapped_name in output
    assert not (made.folder / "results/summary.csv").exists()
    for attempt in (capped, uncapped):
        assert_nothing_left(attempt)
