"""The rules themselves at a site with docker, through Snakemake."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

from tests.plan.conftest import BASE, PARTS

from .conftest import Image
from .nodes import Node

RECIPE = "config/recipes/tiny-cpu-tp1pp2.yaml"
RESULTS = "results/tiny-cpu-tp1pp2"


def test_a_site_with_docker_up_to_its_receipts(
    docker_nodes: list[Node], image: Image, tmp_path: Path
) -> None:
    for part in PARTS:
        copy = shutil.copytree if (BASE / part).is_dir() else shutil.copy2
        copy(BASE / part, tmp_path / part)
    site = tmp_path / "config/sites/docked.yaml"
    words = json.dumps(docker_nodes[0].command)
    text = (tmp_path / "config/sites/laptop.yaml").read_text(encoding="utf-8")
    text = text.replace("name: laptop", "name: docked")
    container = f"runtime: docker\ncontainer:\n  command: {words}\n  shm_size: 64m"
    site.write_text(text.replace("runtime: process", container), encoding="utf-8")
    tagged = f"environment: serve-cpu\n  reference: {image.reference}\n  digest: {image.digest}"
    recipe = tmp_path / RECIPE
    text = recipe.read_text(encoding="utf-8").replace("environment: serve-cpu", tagged)
    recipe.write_text(text, encoding="utf-8")
    settings = "recipes: [tiny-cpu-tp1pp2]\nsite: docked\n"
    (tmp_path / "config/docked.yaml").write_text(settings, encoding="utf-8")
    call = [
        sys.executable,
        "-m",
        "snakemake",
        "--profile",
        "local",
        "--configfile",
        "config/docked.yaml",
    ]
    # The image lacks what the recipe's patches are for: the last rule must say so, the others be done.
    done = subprocess.run(
        [*call, "--cores", "1", f"{RESULTS}/patches/nodes/localhost.json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode != 0
    receipt = json.loads((tmp_path / RESULTS / "image/nodes/localhost.json").read_text(encoding="utf-8"))
    assert (receipt["digest"], receipt["config"]) == (image.digest, image.config)
    log = (tmp_path / "logs/tiny-cpu-tp1pp2/check_patches/localhost.log").read_text(encoding="utf-8")
    assert "was written for another vllm.v1" in log
    assert "dist-packages/vllm/v1" in log
    assert "found:    no file" in log
