"""What an image's tag, its pin and its contents make stale, at a site with containers."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import SNAKEMAKE, Checkout
from .test_what_reruns import POINTS, measured

RECIPE = "config/recipes/tiny-cpu-tp1pp2.yaml"
RESULTS = "results/tiny-cpu-tp1pp2"
CONFIG = "config/docked.yaml"
IMAGE = f"{RESULTS}/image/image.json"
RECEIPT = f"{RESULTS}/image/nodes/localhost.json"
PATCHES = f"{RESULTS}/patches/nodes/localhost.json"
OVERLAY = {f"{RESULTS}/patches/{name}.json" for name in ("originals", "overlay")}
FOLLOWS = {RECEIPT, PATCHES} | OVERLAY | measured(POINTS)
PIN = f"sha256:{'a' * 64}"


@pytest.fixture(scope="module")
def finished_docked(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout in which the tiny sweep has run with docker, on paper: its programs leave marks."""
    folder = tmp_path_factory.mktemp("docked") / "checkout"
    shutil.copytree(finished, folder, symlinks=True)
    checkout = Checkout(folder)
    site = (checkout.folder / "config/sites/laptop.yaml").read_text(encoding="utf-8")
    site = site.replace("name: laptop", "name: docked").replace(
        "runtime: process", "runtime: docker\ncontainer:\n  command: [docker]\n  shm_size: 1g"
    )
    (checkout.folder / "config/sites/docked.yaml").write_text(site, encoding="utf-8")
    settings = (checkout.folder / "config/tiny.yaml").read_text(encoding="utf-8")
    settings = settings.replace("site: laptop", "site: docked")
    (checkout.folder / CONFIG).write_text(settings, encoding="utf-8")
    tagged = f"environment: serve-cpu\n  reference: example/image:v1\n  digest: {PIN}"
    checkout.edit(RECIPE, "environment: serve-cpu", tagged)
    run(checkout, "all")
    assert checkout.stale(config=CONFIG) == set()
    return folder


@pytest.fixture
def docked(finished_docked: Path, tmp_path: Path) -> Checkout:
    """A copy of it, for one test to edit."""
    shutil.copytree(finished_docked, tmp_path / "copy", symlinks=True)
    return Checkout(tmp_path / "copy")


def run(checkout: Checkout, *words: str) -> None:
    shim = checkout.folder / ".envs/serve-cpu/bin/python"
    options = ["--profile", "local", "--configfile", CONFIG, "--quiet", "all"]
    done = subprocess.run(
        [sys.executable, "-c", SNAKEMAKE, str(shim), *options, *words],
        cwd=checkout.folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-3000:]


def test_another_pin_or_tag_makes_the_image_and_the_points_stale(docked: Checkout) -> None:
    docked.edit(RECIPE, PIN, f"sha256:{'b' * 64}")
    assert docked.stale(config=CONFIG) == {IMAGE} | FOLLOWS
    docked.edit(RECIPE, f"sha256:{'b' * 64}", PIN)
    assert docked.stale(config=CONFIG) == set()
    docked.edit(RECIPE, "example/image:v1", "example/image:v2")
    assert docked.stale(config=CONFIG) == {IMAGE} | FOLLOWS


def test_a_tag_is_looked_up_again_only_on_request_and_only_its_contents_count(docked: Checkout) -> None:
    """Nothing asks a registry by itself: a dry run needs no network."""
    run(docked, "--forcerun", "resolve_image", "--until", "resolve_image")
    assert docked.stale(config=CONFIG) == set()
    # The tag has moved: the same step now leaves other contents.
    (docked.folder / IMAGE).write_text("another digest", encoding="utf-8")
    assert docked.stale(config=CONFIG) == FOLLOWS


def test_how_the_engine_is_called_touches_receipts_and_their_contents_decide(docked: Checkout) -> None:
    docked.edit("config/sites/docked.yaml", "[docker]", "[sudo, docker]")
    assert {RECEIPT, PATCHES} <= docked.stale(config=CONFIG)
    assert IMAGE not in docked.stale(config=CONFIG)
