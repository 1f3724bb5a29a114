"""What a change of weight files, or of where they come from, makes stale."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from .conftest import Checkout, run_all
from .test_what_reruns import POINTS, RECIPE, RESULTS, measured

MANIFEST = f"{RESULTS}/weights/manifest.json"
RECEIPT = f"{RESULTS}/weights/nodes/localhost.json"
SITE = "config/sites/laptop.yaml"
STALE = {MANIFEST, RECEIPT} | measured(POINTS)


@pytest.fixture(scope="module")
def published(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished sweep of a recipe whose weights lie on a disk: nothing makes them."""
    folder = tmp_path_factory.mktemp("published") / "checkout"
    shutil.copytree(finished, folder, symlinks=True)
    text = (folder / RECIPE).read_text(encoding="utf-8").splitlines(keepends=True)
    first = next(number for number, line in enumerate(text) if line.startswith("  made:"))
    last = next(n for n in range(first + 1, len(text)) if not text[n].startswith("    "))
    name = next(line for line in text if line.startswith("  id:")).split("/")[1].split()[0]
    (folder / RECIPE).write_text("".join(text[:first] + text[last:]), encoding="utf-8")
    Checkout(folder).edit(SITE, "[resources/made/models]", "[disk, more]")
    model = folder / "disk" / name
    model.mkdir(parents=True)
    (model / "config.json").write_text("{}", encoding="utf-8")
    (model / "model.safetensors").write_bytes(b"weights")
    run_all(folder)
    return folder


@pytest.fixture
def sweep(published: Path, tmp_path: Path) -> Checkout:
    target = tmp_path / "copy"
    shutil.copytree(published, target, symlinks=True)
    return Checkout(target)


def shard(sweep: Checkout) -> Path:
    return next((sweep.folder / "disk").rglob("*.safetensors"))


def test_nothing_changed_nothing_to_do(sweep: Checkout) -> None:
    assert sweep.stale() == set()


def test_a_replaced_shard_makes_verification_and_points_stale(sweep: Checkout) -> None:
    """Also one of the same size; only its time tells from afar."""
    shard(sweep).write_bytes(b"others!")
    assert sweep.stale() == STALE


def test_a_new_file_and_a_lost_one_do_too(sweep: Checkout) -> None:
    more = shard(sweep).with_name("more")
    more.touch()
    assert sweep.stale() == STALE
    more.unlink()
    assert sweep.stale() == set()
    shard(sweep).unlink()
    assert sweep.stale() == STALE


def test_a_touched_shard_costs_as_much_as_a_replaced_one(sweep: Checkout) -> None:
    """The price of not reading them: a copy that keeps times costs nothing."""
    copy = Path(shutil.copy2(shard(sweep), f"{shard(sweep)}.copy"))
    copy.replace(shard(sweep))
    assert sweep.stale() == set()
    shard(sweep).touch()
    assert sweep.stale() == STALE


def test_a_link_that_dangles_is_seen(sweep: Checkout) -> None:
    shard(sweep).with_name("zz").symlink_to("nowhere")
    assert sweep.stale() == STALE


def test_a_byte_that_keeps_size_and_time_is_not_seen_from_afar(sweep: Checkout) -> None:
    """The honest limit: a full verification finds it, and -R verify_weights asks for one."""
    path = shard(sweep)
    status = path.stat()
    path.write_bytes(b"Weights")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert sweep.stale() == set()
    assert sweep.stale(forced=[RECEIPT], targets=["results/summary.csv"]) == {
        RECEIPT,
        "results/summary.csv",
        *POINTS,
    }


def test_after_a_repair_only_verification_and_what_follows_is_redone(sweep: Checkout) -> None:
    """A verification that failed left no receipt, and no point was begun."""
    for name in (RECEIPT, *POINTS):
        (sweep.folder / name).unlink()
    assert sweep.stale() == {RECEIPT} | measured(POINTS)


def test_a_named_folder_and_other_roots_make_the_search_stale(sweep: Checkout) -> None:
    sweep.edit(SITE, "[disk, more]", "[disk, more, others]")
    assert MANIFEST in sweep.stale()
    sweep.edit(SITE, "[disk, more, others]", "[disk, more]")
    assert sweep.stale() == set()
    model = shard(sweep).parent
    override = f"\nweight_overrides:\n  {model_id(sweep)}: {model}\n"
    with (sweep.folder / "config/tiny.yaml").open("a", encoding="utf-8") as stream:
        stream.write(override)
    assert MANIFEST in sweep.stale()


def test_a_shared_root_lets_the_first_node_hash_for_all(sweep: Checkout) -> None:
    sweep.edit(SITE, "weight_roots:", "shared_weight_roots: [disk]\nweight_roots:")
    assert MANIFEST in sweep.stale()


def model_id(sweep: Checkout) -> str:
    lines = (sweep.folder / RECIPE).read_text(encoding="utf-8").splitlines()
    return next(line for line in lines if line.startswith("  id:")).split()[1]
