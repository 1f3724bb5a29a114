"""A patched file of the real vLLM in real ranks: imported by each, and each says so."""

from __future__ import annotations

import json

import pytest

from .conftest import PATCHES, RECIPE, VLLM, Place, diff

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
