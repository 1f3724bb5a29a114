"""A site that gives a partition: when its nodes are chosen anew, and what that makes stale."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from serve_repro.nodes import quarantine

from .conftest import Checkout, run_all
from .test_what_reruns import PLANS, POINTS, RESULTS

RECORD = f"{RESULTS}/nodes.json"
SITE = "config/sites/dev-slurm.yaml"
STATES = {"n1": "idle|none", "n2": "drained|broken", "n3": "idle|none", "n4": "idle|none"}
SINFO = "\n".join(f"echo '{node}|gpu|{state}'" for node, state in STATES.items())
SRUN = 'while [ "${1#-}" != "$1" ]; do shift; done; exec "$@"'


def receipts(*nodes: str) -> set[str]:
    """What each of these nodes proves."""
    kinds = ("weights", "image", "patches")
    return {f"{RESULTS}/{kind}/nodes/{node}.json" for kind in kinds for node in nodes}


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Slurm's commands as shell scripts: four nodes, one of them drained."""
    folder = tmp_path_factory.mktemp("slurm")
    bodies = {"sinfo": SINFO, "srun": SRUN, "scontrol": 'echo "$3" | tr , "\\n"'}
    for name, body in bodies.items():
        (folder / name).write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
        (folder / name).chmod(0o755)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PATH", str(folder), prepend=":")
        yield


@pytest.fixture(scope="module")
def swept_once(slurm: None, finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout whose site gives a partition, and of which all has run, for copies."""
    folder = tmp_path_factory.mktemp("swept") / "checkout"
    shutil.copytree(finished, folder, symlinks=True)
    shutil.rmtree(folder / "results")
    made = Checkout(folder)
    made.edit("config/tiny.yaml", "site: laptop", "site: dev-slurm")
    made.edit(SITE, "nodes: [node1, node2]\n", "patch_files: {offline: offline}\n")
    run_all(folder)
    return folder


@pytest.fixture
def swept(swept_once: Path, tmp_path: Path) -> Checkout:
    """A copy of it, times kept."""
    shutil.copytree(swept_once, tmp_path / "copy", symlinks=True)
    return Checkout(tmp_path / "copy")


@pytest.fixture
def choosing(swept: Checkout) -> Checkout:
    """The same, and nothing of it has run."""
    shutil.rmtree(swept.folder / "results")
    return swept


def chosen(checkout: Checkout) -> list[str]:
    """The nodes on record."""
    record = json.loads((checkout.folder / RECORD).read_text(encoding="utf-8"))
    return list(record["nodes"])


def keep_out(checkout: Checkout, node: str) -> None:
    path = checkout.folder / quarantine.path_of(quarantine.FOLDER, "dev-slurm")
    quarantine.add(path, {node: "it is a test"}, datetime.now(UTC))


def test_before_a_choice_it_comes_first_and_the_points_are_foreseen(choosing: Checkout) -> None:
    assert {RECORD, *PLANS, *POINTS} <= choosing.stale()
    assert not (choosing.folder / RECORD).exists()


def test_the_choice_is_made_once(swept: Checkout) -> None:
    assert chosen(swept) == ["n1", "n3"]
    found = {
        str(path.relative_to(swept.folder)) for path in swept.folder.glob(f"{RESULTS}/*/nodes/*.json")
    }
    assert found == receipts("n1", "n3")
    assert swept.stale() == set()
    swept.edit(SITE, "  partition: gpu", "  account: mine\n  partition: gpu")
    swept.edit(SITE, "title: Two", "title: Some")
    keep_out(swept, "n4")
    assert swept.stale() == set()


def test_a_chosen_node_in_quarantine_is_replaced_and_the_sweep_measured_on_the_new_pair(
    swept: Checkout,
) -> None:
    keep_out(swept, "n1")
    assert RECORD in swept.stale()
    assert PLANS.isdisjoint(swept.stale())
    run_all(swept.folder)
    assert chosen(swept) == ["n3", "n4"]
    assert swept.stale() == set()


def exclude(checkout: Checkout, node: str) -> None:
    entry = f"excludes: [{{node: {node}, reason: x, until: 2100-01-01}}]\n"
    checkout.edit(SITE, "weight_roots:", f"{entry}weight_roots:")


def test_a_lost_record_is_made_again_for_what_is_still_to_be_measured(swept: Checkout) -> None:
    point = f"{RESULTS}/conc2/replay.json"
    (swept.folder / RECORD).unlink()
    assert swept.stale() == set()
    (swept.folder / point).unlink()
    assert {RECORD, point} <= swept.stale([point])


def test_the_same_nodes_chosen_again_measure_nothing_again(swept: Checkout) -> None:
    before = {point: (swept.folder / point).stat().st_mtime_ns for point in POINTS}
    exclude(swept, "n4")
    assert RECORD in swept.stale()
    run_all(swept.folder)
    assert RECORD not in swept.stale()
    assert chosen(swept) == ["n1", "n3"]
    assert {point: (swept.folder / point).stat().st_mtime_ns for point in POINTS} == before


def test_an_excluded_node_is_left_and_all_is_measured_on_the_others(swept: Checkout) -> None:
    before = {point: (swept.folder / point).stat().st_mtime_ns for point in POINTS}
    exclude(swept, "n1")
    run_all(swept.folder)
    assert chosen(swept) == ["n3", "n4"]
    assert swept.stale() == set()
    after = {point: (swept.folder / point).stat().st_mtime_ns for point in POINTS}
    assert all(after[point] != before[point] for point in POINTS)


def test_a_choice_can_be_forced(swept: Checkout) -> None:
    assert {RECORD, *POINTS} <= swept.stale(forced=["select_nodes"])
