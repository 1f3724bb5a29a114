"""A site that gives a partition: nodes are looked at in jobs, chosen once, and kept for the sweep."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from serve_repro.nodes import quarantine
from slurm_cluster import SlurmCluster
from tests.end_to_end.conftest import read

from .conftest import LEVELS, SlurmCheckout, edit_yaml, finish, make_stub_checkout

RECORD = "results/stub/nodes.json"
DRAINED = "its fan is loud"


@pytest.fixture(scope="module")
def five(start_cluster: Callable[..., SlurmCluster]) -> SlurmCluster:
    """Five nodes, of which one is drained."""
    cluster = start_cluster(nodes=5, gpus=8)
    cluster.run("scontrol", "update", "nodename=node2", "state=drain", f"reason={DRAINED}")
    return cluster


def choosing(folder: Path, cluster: SlurmCluster, **changes: Any) -> SlurmCheckout:
    """A stub checkout whose site gives the partition, and excludes node1."""
    checkout = make_stub_checkout(folder, cluster, ["node1"])

    def change(site: dict[str, Any]) -> None:
        del site["nodes"]
        why = {"reason": "it is a test", "until": datetime(2100, 1, 1).date()}
        site["excludes"] = [{"node": "node[1]", **why}]
        site["slurm"].update(changes)

    edit_yaml(folder / "config/sites/test-slurm.yaml", change)
    return checkout


@pytest.fixture(scope="module")
def swept(five: SlurmCluster, tmp_path_factory: pytest.TempPathFactory) -> SlurmCheckout:
    """A checkout whose sweep has run on the nodes that it chose."""
    checkout = choosing(tmp_path_factory.mktemp("chosen") / "checkout", five)
    code, output = finish(checkout.start("--dry-run", "results/summary.csv"))
    assert code == 0, output[-3000:]
    assert "checkpoint select_nodes:" in output
    assert "# nodes: select_nodes chooses them first" in output
    assert not (checkout.folder / RECORD).exists(), "a dry run chooses nothing"
    code, output = finish(checkout.start("results/summary.csv"))
    assert code == 0, output[-3000:]
    checkout.assert_nothing_left()
    return checkout


@pytest.fixture
def again(swept: SlurmCheckout, tmp_path: Path) -> SlurmCheckout:
    """A copy of it for one test."""
    shutil.copytree(swept.folder, tmp_path / "again", symlinks=True)
    return SlurmCheckout(tmp_path / "again", swept.cluster, swept.recipe, swept.config)


def planned(checkout: SlurmCheckout, target: str = "results/summary.csv") -> str:
    """What a dry run says."""
    code, output = finish(checkout.start("--dry-run", target))
    assert code == 0, output[-3000:]
    return output


def test_the_whole_sweep_runs_on_the_first_nodes_that_are_free_and_fit(swept: SlurmCheckout) -> None:
    record = read(swept.folder / RECORD)
    assert record["nodes"] == ["node3", "node4"]
    why = {entry["node"]: entry["why"] for entry in record["candidates"]}
    assert why["node1"] == "excluded by config/sites/test-slurm.yaml"
    assert why["node2"] == f"Slurm says drained: {DRAINED}"
    assert why["node5"] == "not needed, so not looked at"
    assert [visit["node"] for visit in record["visits"]] == ["node3", "node4"]
    assert all(visit["facts"]["host"] == visit["node"] for visit in record["visits"])
    for level in LEVELS:
        assert read(swept.point(level) / "replay.json")["nodes"] == ["node3", "node4"]
    for kind in ("weights", "image", "patches"):
        receipts = (swept.folder / f"results/stub/{kind}/nodes").glob("*.json")
        assert {path.stem for path in receipts} == {"node3", "node4"}, kind


def test_the_choice_stays_though_another_node_is_free_again(again: SlurmCheckout) -> None:
    assert "Nothing to be done" in planned(again)
    shutil.rmtree(again.point(2))
    again.cluster.run("scontrol", "update", "nodename=node2", "state=resume")
    try:
        output = planned(again, "results/stub/conc2/replay.json")
    finally:
        again.cluster.run("scontrol", "update", "nodename=node2", "state=drain", f"reason={DRAINED}")
    assert output.count("rule replay:") == 1
    assert "select_nodes:" not in output
    assert "rule verify_weights:" not in output


def test_a_chosen_node_in_quarantine_is_replaced(again: SlurmCheckout) -> None:
    path = again.folder / quarantine.path_of(quarantine.FOLDER, "test-slurm")
    quarantine.add(path, {"node3": "its GPUs are gone"}, datetime.now(UTC))
    assert "checkpoint select_nodes:" in planned(again)
    code, output = finish(again.start("results/stub/conc1/replay.json"))
    assert code == 0, output[-3000:]
    assert read(again.point(1) / "replay.json")["nodes"] == ["node4", "node5"]
    record = read(again.folder / RECORD)
    assert record["nodes"] == ["node4", "node5"]
    (told,) = record["instead_of"]
    assert told.startswith("node3 until ")
    output = planned(again)
    assert "select_nodes:" not in output, "the new choice stays"
    assert output.count("rule replay:") == len(LEVELS) - 1, "all points are measured on the same nodes"


def test_too_few_are_told_one_by_one_and_nothing_is_proven(five: SlurmCluster, tmp_path: Path) -> None:
    checkout = choosing(tmp_path / "few", five)
    path = checkout.folder / quarantine.path_of(quarantine.FOLDER, "test-slurm")
    quarantine.add(path, {"node3": "rank 1 was silent", "node5": "7 GPUs"}, datetime.now(UTC))
    code, output = finish(checkout.start("results/stub/conc1/replay.json"))
    assert code != 0
    assert "the partition has fewer nodes to choose than the server has ranks" in output
    for told in (
        "node1: excluded by config/sites/test-slurm.yaml",
        f"node2: Slurm says drained: {DRAINED}",
        "node3: in quarantine until ",
        "node4: fit",
    ):
        assert told in output, told
    assert not (checkout.folder / RECORD).exists()
    assert "rule verify_weights:" not in output
    checkout.assert_nothing_left()


def test_a_partition_that_does_not_exist_is_told_with_those_that_do(
    five: SlurmCluster, tmp_path: Path
) -> None:
    checkout = choosing(tmp_path / "unknown", five, partition="gpuu")
    code, output = finish(checkout.start(RECORD))
    assert code != 0
    assert "slurm.partition: gpuu: Slurm has no such partition" in output
    assert "['gpu']" in output
