"""A point is one Slurm job on two whole nodes, with one launcher, and proofs made on those nodes."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest

from slurm_cluster import SlurmCluster
from slurm_required import require_slurm
from tests.end_to_end.conftest import read

from .conftest import LEVELS, SlurmCheckout, Watched, edit_yaml, finish, make_stub_checkout


def test_one_job_a_point_with_its_nodes_and_gpus(watched: Watched) -> None:
    facts = dict(re.findall(r"(\w+)=(\S+)", watched.job))
    assert facts["NumNodes"] == "2"
    assert facts["NodeList"] == "node[1-2]"
    assert facts["NumTasks"] == "2"
    assert watched.job.count("GRES=gpu:") >= 1
    assert "gpu" in facts["TresPerNode"]
    assert facts["TresPerNode"].endswith(":8")
    assert watched.launchers == 1
    assert watched.hosts == {"node1", "node2"}
    assert len(re.findall(r"Job \d+ has been submitted", watched.output)) == len(LEVELS) + 6
    done = watched.checkout
    with (done.folder / "results/summary.csv").open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["status"] for row in rows] == ["valid"] * len(LEVELS)
    assert {row["nodes"] for row in rows} == {"node1 node2"}
    attempt = done.attempt(1)
    assert attempt is not None
    assert "JobState=RUNNING" in (attempt / "slurm_job.txt").read_text(encoding="utf-8")
    addresses = {read(path)["address"] for path in attempt.glob("rank*/started.json")}
    assert len(addresses) == 2


@pytest.mark.nightly
def test_with_an_accounting_database_the_same_holds(
    start_cluster: Callable[..., SlurmCluster], tmp_path: Path
) -> None:
    require_slurm(accounting=True)
    cluster = start_cluster(nodes=2, gpus=8, accounting=True)
    checkout = make_stub_checkout(tmp_path / "accounted", cluster, ["node1", "node2"])
    code, output = finish(checkout.start("results/summary.csv"))
    assert code == 0, output[-3000:]
    asked = ["sacct", "--noheader", "--parsable2", "--allocations", "--allusers"]
    told = cluster.run(*asked, "--format", "State,NNodes,AllocTRES").splitlines()
    assert all(line.startswith("COMPLETED|") for line in told)
    points = [line for line in told if "|2|" in line]
    assert len(points) == len(LEVELS)
    assert all("gres/gpu=16" in line for line in points)


@pytest.mark.nightly
def test_two_points_run_side_by_side_where_there_are_nodes_for_both(
    start_cluster: Callable[..., SlurmCluster], tmp_path: Path
) -> None:
    four = start_cluster(nodes=4, gpus=8)
    names = [f"node{number}" for number in (1, 2, 3, 4)]
    checkout = make_stub_checkout(tmp_path / "four", four, names)
    code, output = finish(checkout.start("--jobs", "4", "results/summary.csv"))
    assert code == 0, output[-3000:]
    points = [read(checkout.point(level) / "replay.json") for level in LEVELS]
    first, second = (set(point["nodes"]) for point in points)
    assert not first & second
    launches = [
        read(checkout.point(level) / point["attempt"] / "launch.json")
        for level, point in zip(LEVELS, points, strict=True)
    ]
    ports = [launch["values"][0]["API_PORT"] for launch in launches]
    assert ports[0] != ports[1]
    spans = [
        (datetime.fromisoformat(point["started"]).timestamp(), sum(point["seconds"].values()))
        for point in points
    ]
    (one, _), (other, _) = spans
    assert abs(one - other) < max(length for _, length in spans), "they overlapped"
    checkout.assert_nothing_left()


def test_a_point_on_a_node_without_proofs_is_not_begun(again: SlurmCheckout) -> None:
    """The job's nodes decide, not the list: here the receipts of one of them are another's."""
    for kind in ("weights", "image", "patches"):
        receipt = again.folder / f"results/stub/{kind}/nodes/node2.json"
        text = receipt.read_text(encoding="utf-8").replace('"node": "node2"', '"node": "node9"')
        receipt.write_text(text, encoding="utf-8")
    code, output = finish(again.start("results/stub/conc2/replay.json"))
    assert code != 0
    assert "node node2: this node has no receipt for weights" in output
    assert again.attempt(2) is None


def test_a_point_that_cannot_finish_is_not_begun(again: SlurmCheckout) -> None:
    edit_yaml(
        again.folder / "config/recipes/stub.yaml",
        lambda recipe: recipe["replay"].update(duration_s=120),
    )
    code, output = finish(
        again.start("results/stub/conc2/replay.json", "--set-resources", "replay:runtime=1")
    )
    assert code != 0
    assert "the point cannot finish in the time that the job has left, so it is not begun" in output
    assert again.attempt(2) is None
