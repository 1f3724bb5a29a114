"""The plan: formulas, golden files, and what it says aloud."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path

import pytest

from serve_repro.errors import UserError
from serve_repro.plan import sizes
from serve_repro.plan.bindings import MEANINGS, fill, fill_all
from serve_repro.plan.build import make_plan
from serve_repro.plan.model import read_plan
from serve_repro.plan.shell import render
from serve_repro.recipe.load import load
from serve_repro.recipe.recipe import Recipe, Topology
from serve_repro.recipe.site import Site

from .plans import plan_of

BASE = Path(__file__).parents[2]
GOLDEN = Path(__file__).parent / "golden"
K3 = "kimik3-fp4-mi355x-vllm-agentic-tp8pp2"


@pytest.mark.parametrize("concurrency", [4, 20])
def test_the_k3_plan_is_exactly_the_golden_file(concurrency: int) -> None:
    """Every flag, variable, mount and byte of both ranks and the client.

    After a wanted change: python scripts/show_plan.py --concurrency N > the golden file.
    """
    golden = GOLDEN / f"{K3}.conc{concurrency}.sh"
    assert render(plan_of(K3, "mi355x-amds", concurrency)) == golden.read_text(encoding="utf-8")


def test_only_the_client_depends_on_the_concurrency() -> None:
    """The server of the publication is the same at every point."""
    four, twenty = (plan_of(K3, "mi355x-amds", concurrency) for concurrency in (4, 20))
    for low, high in zip(four.ranks, twenty.ranks, strict=True):
        strip = [word.replace("-conc20-", "-conc4-") for word in high.start.argv]
        assert low.start.argv == strip
    differing = [
        (low, high)
        for low, high in zip(four.client.command.argv, twenty.client.command.argv, strict=True)
        if low != high
    ]
    assert differing == [("4", "20")]


def test_k3_numbers_follow_from_the_formulas() -> None:
    plan = plan_of(K3, "mi355x-amds", 4)
    assert plan.memory is not None
    assert plan.memory.dram_gb_per_node == 1499
    assert plan.memory.kv_offload_bytes_per_rank == 187_375_000_000
    assert plan.topology.world_size == 16
    assert [rank.role for rank in plan.ranks] == ["api", "headless"]
    assert plan.expect.validity == "submission"
    assert "--unsafe-override" not in plan.client.command.argv


def test_the_plan_says_aloud_what_a_reader_should_know() -> None:
    warnings = " ".join(plan_of(K3, "mi355x-amds", 4).warnings)
    assert "max-num-seqs 20 x 3 rows = 60 is above the largest captured graph (44)" in warnings
    assert "--privileged" in warnings


@pytest.mark.parametrize(
    ("dram_mib", "utilization", "gigabytes"),
    [
        (3_095_781, 0.5, 1499),  # the publication's cluster: the cap applies
        (2_861_022, 1.0, 2999),  # exactly the cap
        (1_000_000, 0.5, 524),
    ],
)
def test_dram_is_capped_and_rounded_down(dram_mib: int, utilization: float, gigabytes: int) -> None:
    assert sizes.dram_gb_per_node(dram_mib, utilization, used=8, per_node=8) == gigabytes


@pytest.mark.parametrize(
    ("tp", "pp", "per_node", "ranks", "world"),
    [(8, 2, 8, 2, 16), (1, 2, 1, 2, 2), (1, 1, 1, 1, 1), (4, 2, 8, 1, 8), (2, 1, 8, 1, 2)],
)
def test_ranks_and_world_size(tp: int, pp: int, per_node: int, ranks: int, world: int) -> None:
    topology = Topology(tensor_parallel=tp, pipeline_parallel=pp)
    assert sizes.server_ranks(topology, per_node) == ranks
    assert sizes.world_size(topology) == world


def test_a_topology_that_fills_a_node_only_partly_is_refused() -> None:
    with pytest.raises(UserError, match="does not fill the site's nodes"):
        sizes.accelerators_on_node(Topology(tensor_parallel=8, pipeline_parallel=3), 16)


def test_a_site_without_dram_is_refused_where_a_share_is_wanted() -> None:
    recipe = load(BASE / f"config/recipes/{K3}.yaml", Recipe)
    site = load(BASE / "config/sites/mi355x-amds.yaml", Site).model_copy(
        update={"dram_mib_per_node": None}
    )
    with pytest.raises(UserError, match=r"mi355x-amds\.yaml: dram_mib_per_node"):
        make_plan(recipe, site, 4)


def test_a_plan_survives_its_file(tmp_path: Path) -> None:
    plan = plan_of("tiny-cpu-tp1pp2", "laptop", 2)
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(plan.model_dump(mode="json")), encoding="utf-8")
    assert read_plan(path) == plan
    assert read_plan(path).digest() == plan.digest()


def test_a_plan_of_another_version_is_refused_with_a_remedy(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text('{"recipe": "x"}', encoding="utf-8")
    with pytest.raises(UserError, match=r"snakemake .* --force"):
        read_plan(path)


def test_a_hole_in_a_command_is_never_started() -> None:
    with pytest.raises(UserError, match="no value"):
        fill("--port ${API_PORT}", {})


def test_shown_commands_mean_in_a_shell_what_the_plan_says() -> None:
    """Paste the whole text into a real shell, with `words` in place of the programs it would start."""
    plan = plan_of(K3, "mi355x-amds", 4)
    values = {name: f'<{name}> $x `y` "z"' for name in MEANINGS}
    values["OVERLAY_MOUNTS"] = "--volume\n/a:/b:ro"
    rank = plan.ranks[0]
    text = render(plan)
    start = text.index("# rank 0")
    command = text[start : text.index("\n\n", start)].split("\n", 1)[1]
    setup = "".join(f"{name}={shlex.quote(value)}\n" for name, value in values.items())
    script = f"{setup}srun() {{ printf '%s\\0' srun \"$@\"; }}\n{command}\n"
    shown = subprocess.run(["bash", "-c", script], capture_output=True, check=True, text=True).stdout
    assert shown.rstrip("\0").split("\0") == fill_all([*rank.prefix, *rank.start.argv], values)
