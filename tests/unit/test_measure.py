"""The receipts that a point stands on, and what a version that cannot start a plan says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from serve_repro.documents import write_json
from serve_repro.errors import UserError
from serve_repro.plan.model import Plan
from serve_repro.point.proofs import Proofs, check_proofs, identity, read_proofs
from serve_repro.point.values import bind, weights_folder
from serve_repro.weights.locate import Found
from serve_repro.weights.manifest import manifest
from serve_repro.weights.receipt import verify

from .plans import plan_of

BASE = Path(__file__).parents[2]
K3 = "kimik3-fp4-mi355x-vllm-agentic-tp8pp2"


NODES = ["n0", "n1"]


@pytest.fixture
def plan() -> Plan:
    """The tiny plan, its two ranks to be on two nodes."""
    return plan_of("tiny-cpu-tp1pp2", "laptop", 2)


@pytest.fixture
def proofs(tmp_path: Path) -> Proofs:
    """Real receipts of real (small) files, for two nodes."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"\x02" + bytes(7) + b"{}")
    listed = manifest("org/model", Found(folder, "plain", None))

    def receipts(digest: str) -> list[dict[str, Any]]:
        return [{"node": node, "digest": digest} for node in ("n0", "n1")]

    weights = [
        {"node": node, "digest": listed["digest"], "models": [verify(listed, node)]}
        for node in ("n0", "n1")
    ]
    return Proofs(
        weights=weights,
        image=receipts("sha256:image"),
        patches=receipts("sha256:patches"),
        patch_folder=tmp_path / "patches",
        dataset={"digest": "sha256:dataset", "folder": "traces"},
        client={"digest": "sha256:client"},
    )


def with_receipts(proofs: Proofs, kind: str, receipts: list[dict[str, Any]]) -> Proofs:
    changed: dict[str, Any] = proofs._asdict() | {kind: receipts}
    return Proofs(**changed)


def test_with_every_receipt_a_point_may_start(plan: Plan, proofs: Proofs) -> None:
    check_proofs(plan, NODES, proofs)


@pytest.mark.parametrize("kind", ["weights", "image", "patches"])
def test_a_node_without_a_receipt_is_named_with_what_makes_it(
    plan: Plan, proofs: Proofs, kind: str
) -> None:
    """The nodes that were prepared are not those that will serve."""
    first, second = getattr(proofs, kind)
    staged = with_receipts(proofs, kind, [first, second | {"node": "n7"}])
    with pytest.raises(UserError, match=f"node n1: this node has no receipt for {kind}") as error:
        check_proofs(plan, NODES, staged)
    told = str(error.value)
    assert "found:    ['n0', 'n7']" in told
    assert f"snakemake results/tiny-cpu-tp1pp2/{kind}/nodes/n1.json" in told


@pytest.mark.parametrize("kind", ["weights", "image", "patches"])
def test_nodes_that_differ_are_told_with_both_digests(plan: Plan, proofs: Proofs, kind: str) -> None:
    first, second = getattr(proofs, kind)
    other = second | {"digest": "sha256:other"}
    with pytest.raises(UserError, match=f"nodes differ in their {kind}") as error:
        check_proofs(plan, NODES, with_receipts(proofs, kind, [first, other]))
    assert f"'n0': '{first['digest']}'" in str(error.value)
    assert "'n1': 'sha256:other'" in str(error.value)


def test_a_weight_file_that_was_touched_since_stops_the_point(
    plan: Plan, proofs: Proofs, tmp_path: Path
) -> None:
    (tmp_path / "model/model.safetensors").write_bytes(b"WEIGHTS")
    with pytest.raises(UserError, match=r"node n0: .*model\.safetensors: file changed after"):
        check_proofs(plan, NODES, proofs)


def test_identity_names_all_that_can_change_a_number(plan: Plan, proofs: Proofs) -> None:
    assert identity(plan, proofs, 3) == {
        "plan": f"sha256:{plan.digest()}",
        "weights": proofs.weights[0]["digest"],
        "image": "sha256:image",
        "patches": "sha256:patches",
        "dataset": "sha256:dataset",
        "client": "sha256:client",
        "driver": 3,
    }


def test_receipts_survive_their_files(proofs: Proofs, tmp_path: Path) -> None:
    paths: dict[str, list[Path]] = {}
    for kind in ("weights", "image", "patches"):
        paths[kind] = [tmp_path / f"{kind}-{receipt['node']}.json" for receipt in getattr(proofs, kind)]
        for path, receipt in zip(paths[kind], getattr(proofs, kind), strict=True):
            write_json(path, receipt)
    for kind in ("dataset", "client"):
        write_json(tmp_path / f"{kind}.json", getattr(proofs, kind))
    read = read_proofs(
        **paths,
        patch_set=tmp_path / "patches/set.json",
        dataset=tmp_path / "dataset.json",
        client=tmp_path / "client.json",
    )
    assert read == proofs


def test_every_name_that_a_plan_uses_gets_a_value(plan: Plan, proofs: Proofs, tmp_path: Path) -> None:
    image = [{"node": "localhost", "digest": "sha256:image", "target": "image.sif"}]
    here = with_receipts(proofs, "image", image)
    values = bind(plan, here, ["localhost"] * 2, "run1", tmp_path / "attempt", tmp_path / "scratch")
    assert len(values) == 2
    for rank, own in enumerate(values):
        # What only the rank's node knows is filled in there.
        assert plan.bindings.keys() - own.keys() <= {"HOST_NAME", "HOST_ADDR", "INTERFACE", "USER_IDS"}
        assert {name for name, value in own.items() if not value} <= {
            *("WEIGHTS_PATH", "DRAFT_PATH", "OVERLAY_MOUNTS")
        }
        assert weights_folder(own) == tmp_path / "model"
        assert own["RANK_DIR"] == str(tmp_path / f"attempt/rank{rank}")
        assert own["RUN_ID"] == "run1"
    assert values[0]["API_PORT"] != values[0]["MASTER_PORT"]
    assert values[0]["MASTER_PORT"] == values[1]["MASTER_PORT"]
    assert plan.ports.first <= int(values[0]["API_PORT"]) <= plan.ports.last
