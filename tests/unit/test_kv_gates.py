"""Gates on KV offload: on or off as planned, its size, and blocks that every stage has."""

from __future__ import annotations

from typing import Any

import pytest

from serve_repro.gates import checks
from serve_repro.gates.evidence import Evidence, collect
from serve_repro.plan.model import Expectations, Plan

from .attempts import write_attempt
from .plans import plan_of


@pytest.fixture(scope="module")
def plan() -> Plan:
    """A point of the tiny recipe: two ranks, 64 MiB of host memory each."""
    return plan_of("tiny-cpu-tp1pp2", "laptop", 2)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    """A valid attempt at that point."""
    folder = write_attempt(tmp_path_factory.mktemp("attempt"), [])
    return collect(folder, 2, folder / "patches")


def expecting(plan: Plan, **changes: Any) -> Plan:
    """The plan with other expectations."""
    expect = Expectations.model_validate(plan.expect.model_dump() | changes)
    return plan.model_copy(update={"expect": expect})


@pytest.mark.parametrize(
    ("connector", "info", "outcome"),
    [
        ("SimpleCPUOffloadConnector", {"capacity_blocks": "1024"}, "pass"),
        ("SimpleCPUOffloadConnector", None, "unknown"),
        (None, None, "pass"),
        (None, {"capacity_blocks": "1024"}, "fail"),
    ],
)
def test_kv_offload(
    plan: Plan, good: Evidence, connector: str | None, info: dict[str, str] | None, outcome: str
) -> None:
    evidence = good._replace(offload_info=info)
    planned = expecting(plan, kv_offload_connector=connector)
    assert checks.kv_offload(planned, evidence).outcome == outcome


@pytest.mark.parametrize(
    ("gib", "outcome"),
    [
        ([0.06, 0.06], "pass"),  # 64 MiB are 0.0625 GiB
        ([0.06, 0.05], "fail"),
        ([0.03, 0.03], "fail"),
        ([0.12, 0.12], "fail"),
        ([], "unknown"),
    ],
)
def test_kv_offload_has_the_planned_size(
    plan: Plan, good: Evidence, gib: list[float], outcome: str
) -> None:
    assert plan.expect.kv_offload_bytes_per_rank == 64 << 20
    logs = [good.logs[0]._replace(host_gib=gib), good.logs[1]._replace(host_gib=[])]
    assert checks.kv_offload(plan, good._replace(logs=logs)).outcome == outcome


def test_a_server_without_the_metric_tells_its_blocks_in_its_log(plan: Plan, good: Evidence) -> None:
    logs = [good.logs[0]._replace(scheduler_blocks=1024), good.logs[1]]
    told = good._replace(offload_info=None, logs=logs)
    for gate in (checks.kv_offload, checks.kv_blocks):
        assert gate(plan, told).outcome == "pass"
        assert gate(plan, good._replace(offload_info=None)).outcome == "unknown"
    over = told._replace(logs=[logs[0]._replace(scheduler_blocks=2048), logs[1]])
    assert checks.kv_blocks(plan, over).outcome == "fail"


@pytest.mark.parametrize(
    ("capacity", "stages", "outcome"),
    [
        ("1024", [[1024], [1024]], "pass"),
        ("170", [[512], [170]], "pass"),
        ("512", [[512], [170]], "fail"),
        ("1024", [[1024], []], "unknown"),
        ("", [[1024], [1024]], "unknown"),
        (None, [[1024], [1024]], "unknown"),
    ],
)
def test_kv_blocks(
    plan: Plan, good: Evidence, capacity: str | None, stages: list[list[int]], outcome: str
) -> None:
    logs = [log._replace(host_blocks=own) for log, own in zip(good.logs, stages, strict=True)]
    info = None if capacity is None else {"capacity_blocks": capacity}
    evidence = good._replace(logs=logs, offload_info=info)
    assert checks.kv_blocks(plan, evidence).outcome == outcome
    without = expecting(plan, kv_offload_connector=None)
    assert checks.kv_blocks(without, evidence).outcome == "pass"


def test_too_many_blocks_are_told_with_the_stage_that_lacks_them(plan: Plan, good: Evidence) -> None:
    logs = [good.logs[0], good.logs[1]._replace(host_blocks=[341])]
    seen = checks.kv_blocks(plan, good._replace(logs=logs)).seen
    assert seen == "scheduler hands out 1024 host blocks; rank 0 has 1024, rank 1 has 341"


@pytest.mark.parametrize(
    ("derived", "outcome"),
    [([1024, 341], "pass"), ([1024, 340], "fail"), ([341, 1024], "fail"), (None, "pass")],
)
def test_workers_that_do_not_have_what_the_plan_derives_stop_the_point(
    plan: Plan, good: Evidence, derived: list[int] | None, outcome: str
) -> None:
    logs = [good.logs[0], good.logs[1]._replace(host_blocks=[341])]
    evidence = good._replace(logs=logs, offload_info={"capacity_blocks": "341"})
    result = checks.kv_blocks(expecting(plan, kv_offload_blocks=derived), evidence)
    assert result.outcome == outcome
    told = "scheduler hands out 341 host blocks; rank 0 has 1024, rank 1 has 341"
    assert result.seen == told + (f"; the plan derives {derived} by stage" if derived else "")


def test_a_node_may_hold_workers_of_several_stages(plan: Plan, good: Evidence) -> None:
    """TP1 x PP4 on two nodes: stages 0 and 1 on the first, in whatever order they speak."""
    topology = plan.topology.model_copy(update={"world_size": 4, "accelerators_per_node": 2})
    wide = expecting(plan, kv_offload_blocks=[40, 30, 20, 10]).model_copy(update={"topology": topology})
    info = {"capacity_blocks": "10"}

    def outcome(*stages: list[int]) -> str:
        logs = [log._replace(host_blocks=own) for log, own in zip(good.logs, stages, strict=True)]
        return checks.kv_blocks(wide, good._replace(logs=logs, offload_info=info)).outcome

    assert outcome([30, 40], [20, 10]) == "pass"
    assert outcome([40, 20], [30, 10]) == "fail"
