"""Real vLLM that is started otherwise than the recipe says: refused by name, before or after a replay.

The plan is the recipe's in all but its ranks' commands: those are of a recipe with another key.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from serve_repro.plan.build import make_plan
from serve_repro.plan.model import Plan
from serve_repro.recipe.recipe import Recipe
from tests.end_to_end.conftest import finish

from .conftest import Bench, Measured, assert_no_row, recipe_of, site_with_ports

pytestmark = pytest.mark.end_to_end

CONCURRENCY = 2
TWO_STAGES, DRAFTED = "tiny-cpu-tp1pp2", "tiny-cpu-spec"
LIMIT_S = 400


class Wrong(NamedTuple):
    """A server that is not the recipe's."""

    recipe: str
    change: Callable[[dict[str, Any]], None]
    """What is other in the recipe that the server is started from."""
    stage: str
    """Where the point ends; empty: it is judged after its replay."""
    told: str
    """What the reason says."""
    offload: bool = True
    """False: neither the recipe nor the server offloads KV blocks."""


def key(section: str, **values: Any) -> Callable[[dict[str, Any]], None]:
    """Other keys in one section."""

    def change(recipe: dict[str, Any]) -> None:
        recipe[section] |= values

    return change


def without(section: str) -> Callable[[dict[str, Any]], None]:
    """A section left out."""

    def change(recipe: dict[str, Any]) -> None:
        recipe[section] = None

    return change


SERVERS = {
    "no-speculation": Wrong(
        DRAFTED,
        without("speculation"),
        "ready",
        "speculation unknown: the server has no vllm:spec_decode_num_drafts_total",
    ),
    "shorter-acceptance": Wrong(
        DRAFTED, key("speculation", acceptance_length=2.0), "", "acceptance fail: acceptance length 2.0"
    ),
    "no-offload": Wrong(TWO_STAGES, without("kv_offload"), "ready", "kv_offload unknown: neither"),
    "half-the-offload": Wrong(
        TWO_STAGES,
        key("kv_offload", bytes_per_rank=33554432),
        "ready",
        "kv_offload fail: 512 blocks of host memory; workers say 0.03 GiB, planned 0.062",
    ),
    "no-prefix-caching": Wrong(
        TWO_STAGES,
        key("serve", prefix_caching=False),
        "ready",
        "prefix_caching fail: on: False",
        offload=False,
    ),
    "another-name": Wrong(
        TWO_STAGES,
        key("model", served_name="other"),
        "ready",
        "the server offers ['other']",
    ),
    "one-stage": Wrong(
        TWO_STAGES,
        key("topology", pipeline_parallel=1),
        "ready",
        "world_size fail: workers (rank, world size) [(0, 1)], planned 2",
    ),
    "shorter-context": Wrong(
        TWO_STAGES,
        key("serve", max_model_len=16384),
        "ready",
        "the server's max_model_len is 16384, expected 32768",
    ),
}
DEFAULT = {"half-the-offload"}
"""The one that every run of the tests starts; the others are for the night."""


@pytest.fixture(scope="session")
def real(environments: Path, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """A checkout with the receipts of the shipped tiny recipes."""
    folder = tmp_path_factory.mktemp("wrong") / "checkout"
    return Bench(folder, environments, [recipe_of(TWO_STAGES), recipe_of(DRAFTED)])


def plan_of(name: str, wrong: Wrong) -> Plan:
    """The recipe's plan, with the commands of another one."""
    changed = {"name": name} if wrong.offload else {"name": name, "kv_offload": None}
    right, other = (recipe_of(wrong.recipe) | changed for _ in range(2))
    wrong.change(other)
    plan, served = (
        make_plan(Recipe.model_validate(recipe), site_with_ports(19500), CONCURRENCY)
        for recipe in (right, other)
    )
    return plan.model_copy(update={"ranks": served.ranks})


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in DEFAULT else [pytest.mark.nightly]) for name in SERVERS],
)
def test_another_server_than_the_recipes_is_refused_by_name(real: Bench, name: str) -> None:
    wrong = SERVERS[name]
    process, folder = real.start(plan_of(name, wrong), wrong.recipe, "made-agentic-tiny")
    result = Measured(folder, *finish(process, LIMIT_S))
    row = assert_no_row(real, name, CONCURRENCY, result)
    assert row["status"] == ("failed" if wrong.stage else "invalid"), result.output[-3000:]
    assert result.point.get("stage", "") == wrong.stage
    assert wrong.told in row["reason"]
