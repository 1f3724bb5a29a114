"""A patched file of the real vLLM in real ranks: imported by each, and each says so."""

from __future__ import annotations

import json

import pytest

from tests.end_to_end.conftest import assert_nothing_left, shared_memory_unchanged

from .conftest import PATCHES, RECIPE, VLLM, Place, diff

__all__ = ["shared_memory_unchanged"]  # a fixture

WORKER = "vllm/v1/worker/cpu_worker.py"
MARK = "logger = init_logger(__name__)\n"


@pytest.mark.nightly
def test_both_ranks_run_the_patched_file_and_the_point_is_valid(place: Place) -> None:
    before = (VLLM / WORKER).read_text(encoding="utf-8")
    after = before.replace(MARK, MARK + 'logger.info("the patched file is %s", __file__)\n', 1)
    place.add(diff(WORKER, before, after))
    run = place.run(f"results/{RECIPE}/conc1/replay.json")
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]
    folder = place.folder / f"results/{RECIPE}/conc1"
    point = json.loads((folder / "replay.json").read_text(encoding="utf-8"))
    assert point["status"] == "valid"
    attempt = folder / point["attempt"]
    overlay = json.loads((place.folder / PATCHES / "overlay.json").read_text(encoding="utf-8"))
    seen = [{"path": WORKER, "sha256": overlay["files"][0]["after"]}]
    processes = []
    for rank in (0, 1):
        log = (attempt / f"rank{rank}/server.log").read_text(encoding="utf-8")
        assert f"the patched file is {attempt.absolute()}/view/{WORKER}" in log
        lines = (attempt / f"rank{rank}/attestations.jsonl").read_text(encoding="utf-8").splitlines()
        told = [line for line in map(json.loads, lines) if line["patch"] == "of-others"]
        assert all(line["installed"] and line["targets"] == seen for line in told)
        processes.append({line["process"] for line in told})
    assert processes == [{"api", "engine", "worker"}, {"api", "worker"}]
    assert not (attempt / "view").exists()
    assert (VLLM / WORKER).read_text(encoding="utf-8") == before


@pytest.mark.nightly
def test_a_file_that_changed_after_its_receipt_ends_the_ranks(
    place: Place, shared_memory_unchanged: None
) -> None:
    """As on a node that sees other files than the one whose receipt was made: nothing is served."""
    before = (VLLM / WORKER).read_text(encoding="utf-8")
    place.add(diff(WORKER, before, before.replace(MARK, MARK + "# patched\n", 1)))
    assert place.receipt().returncode == 0
    (place.folder / PATCHES / "overlay" / WORKER).write_text(before, encoding="utf-8")
    run = place.run(f"results/{RECIPE}/conc1/replay.json")
    assert run.returncode != 0
    folder = place.folder / f"results/{RECIPE}/conc1"
    assert not (folder / "replay.json").exists()
    (attempt,) = (folder / "attempts").iterdir()
    point = json.loads((attempt / "point.json").read_text(encoding="utf-8"))
    assert (point["status"], point["stage"]) == ("failed", "boot")
    assert "78" in point["reason"], point["reason"]
    lines = (attempt / "rank0/attestations.jsonl").read_text(encoding="utf-8").splitlines()
    refused = [line for line in map(json.loads, lines) if not line["installed"]]
    assert refused and all(line["patch"] == "of-others" for line in refused)
    assert_nothing_left(attempt)
