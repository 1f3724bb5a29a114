"""Gates on which server it is and where it runs, and what they read from ranks' logs."""

from __future__ import annotations

from pathlib import Path

import pytest

from serve_repro.gates import server
from serve_repro.gates.evidence import Evidence, RankLog, collect, read_log
from serve_repro.gates.result import Result
from serve_repro.plan.model import Expectations, Plan

from .attempts import write_attempt
from .plans import plan_of


@pytest.fixture(scope="module")
def plan() -> Plan:
    return plan_of("tiny-cpu-tp1pp2", "laptop", 2)


@pytest.fixture(scope="module")
def k3() -> Plan:
    """Two ranks of eight workers each, on Slurm."""
    return plan_of("kimik3-fp4-mi355x-vllm-agentic-tp8pp2", "mi355x-amds", 16)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    folder = write_attempt(tmp_path_factory.mktemp("attempt"), [])
    return collect(folder, 2, folder / "patches")


def logs_of(ranks: int, workers: int, stages: dict[int, int] | None = None) -> list[RankLog]:
    """Logs of ranks that hold so many workers each; the first of each rank says its stage."""
    world = ranks * workers
    found = []
    for rank in range(ranks):
        first = rank * workers
        own = {(first + number, world) for number in range(workers)}
        stage = (stages or {}).get(first, rank)
        found.append(RankLog(1, own, [], None, stages={first: stage}, replicas={0}))
    return found


@pytest.mark.parametrize(
    ("models", "outcome"),
    [
        ({"serve-repro/tiny-llama"}, "pass"),
        ({"someone/else"}, "fail"),
        ({"serve-repro/tiny-llama", "someone/else"}, "fail"),
        (set(), "unknown"),
    ],
)
def test_metrics_model(plan: Plan, good: Evidence, models: set[str], outcome: str) -> None:
    assert server.metrics_model(plan, good._replace(metrics_of=models)).outcome == outcome


def test_metrics_name_their_model(good: Evidence) -> None:
    assert good.metrics_of == {"serve-repro/tiny-llama"}


@pytest.mark.parametrize(
    ("workers", "outcome"),
    [
        ({(0, 2), (1, 2)}, "pass"),
        ({(0, 2)}, "fail"),
        ({(0, 1)}, "fail"),
        ({(0, 1), (1, 2)}, "fail"),
        ({(0, 4), (1, 4), (2, 4), (3, 4)}, "fail"),
        (set(), "unknown"),
    ],
)
def test_world_size(plan: Plan, good: Evidence, workers: set[tuple[int, int]], outcome: str) -> None:
    logs = [RankLog(1, workers, [], None), RankLog(1, set(), [], None)]
    assert server.world_size(plan, good._replace(logs=logs)).outcome == outcome


def test_world_size_of_tp8_pp2(k3: Plan, good: Evidence) -> None:
    def found(logs: list[RankLog]) -> Result:
        return server.world_size(k3, good._replace(logs=logs))

    assert found(logs_of(2, 8)).outcome == "pass"
    assert found(logs_of(2, 4)).outcome == "fail"
    tp16 = found(logs_of(2, 8, {8: 0}))  # as many workers, all in one stage
    assert tp16.outcome == "fail"
    assert "worker 8 in stage 0" in tp16.seen
    two = [log._replace(replicas={rank}) for rank, log in enumerate(logs_of(2, 8))]
    assert found(two).seen.startswith("data-parallel ranks [0, 1]")


@pytest.mark.parametrize(
    ("job", "outcome"),
    [
        ("NumNodes=2\n   AllocTRES=cpu=256,node=2,gres/gpu=16", "pass"),
        ("ReqTRES=cpu=2,gres/gpu=8\n   AllocTRES=cpu=256,node=2,gres/gpu=16", "pass"),
        ("TRES=cpu=32,node=2\n   JOB_GRES=gpu:16\n     Nodes=n[1-2] GRES=gpu:8(IDX:0-7)", "pass"),
        ("TRES=cpu=32,node=2\n   JOB_GRES=gpu:mi355x:16\n     Nodes=n[1-2] GRES=gpu:8", "pass"),
        ("TRES=cpu=32,node=2\n   JOB_GRES=gpu:8\n     Nodes=n1 GRES=gpu:8(IDX:0-7)", "fail"),
        ("NumNodes=2\n   TRES=cpu=256,mem=9G,node=2,billing=256,gres/gpu=16", "pass"),
        ("NumNodes=2\n   AllocTRES=cpu=256,node=2,gres/gpu=8", "fail"),
        ("NumNodes=2\n   AllocTRES=cpu=256,node=2", "unknown"),
        (None, "unknown"),
    ],
)
def test_allocation(k3: Plan, good: Evidence, job: str | None, outcome: str) -> None:
    evidence = good._replace(logs=logs_of(2, 8), job=job)
    assert server.allocation(k3, evidence).outcome == outcome


def test_each_rank_has_its_share_of_the_workers(plan: Plan, k3: Plan, good: Evidence) -> None:
    assert server.allocation(plan, good).outcome == "pass"
    uneven = [log._replace(workers=set()) for log in logs_of(1, 16)] + logs_of(1, 16)
    assert server.allocation(k3, good._replace(logs=uneven)).outcome == "fail"
    silent = [log._replace(workers=set()) for log in logs_of(2, 8)]
    assert server.allocation(k3, good._replace(logs=silent)).outcome == "unknown"


@pytest.mark.parametrize(
    ("wanted", "says", "asked", "accelerator", "outcome"),
    [
        (None, None, None, "mi355x", "pass"),
        (False, False, None, "mi355x", "pass"),
        (False, True, False, "mi355x", "fail"),  # what it says counts more than what it was asked
        (False, None, False, "mi355x", "pass"),
        (False, None, True, "mi355x", "fail"),
        (True, None, True, "mi355x", "pass"),
        (True, None, True, "cpu", "fail"),
        (True, None, None, "mi355x", "unknown"),
    ],
)
def test_async_scheduling(
    plan: Plan,
    good: Evidence,
    wanted: bool | None,
    says: bool | None,
    asked: bool | None,
    accelerator: str,
    outcome: str,
) -> None:
    expect = Expectations.model_validate(plan.expect.model_dump() | {"async_scheduling": wanted})
    topology = plan.topology.model_copy(update={"accelerator": accelerator})
    planned = plan.model_copy(update={"expect": expect, "topology": topology})
    log = good.logs[0]._replace(async_scheduling=says, async_asked=asked)
    assert server.async_scheduling(planned, good._replace(logs=[log])).outcome == outcome


LOG = """\
(APIServer) INFO [api_utils.py:286] non-default args: {'port': 1, 'async_scheduling': False, 'x': {}}
(APIServer) INFO [vllm.py:1] Asynchronous scheduling is disabled.
(Worker) INFO [parallel_state.py:1906] world_size=4 rank=2 local_rank=0 distributed_init_method=x
(Worker) INFO [parallel_state.py:1906] world_size=4 rank=3 local_rank=1 distributed_init_method=x
(Worker) INFO [parallel_state.py:2350] rank 2 in world size 4 is assigned as DP rank 0, PP rank 1, x
(Worker_PP1) INFO [worker.py:213] SimpleCPUOffloadWorker [CPU]: 2 tensors, 1024 CPU blocks (0.06 GB)
(EngineCore) INFO [manager.py:194] SimpleCPUOffloadScheduler: Allocating 512 offload blocks (0.06 GB)
"""


def test_what_a_log_says_of_its_server(tmp_path: Path) -> None:
    """Only the first worker of a node says its stage; all of them their rank."""
    path = tmp_path / "server.log"
    path.write_text(LOG, encoding="utf-8")
    found = read_log(path)
    assert found.workers == {(2, 4), (3, 4)}
    assert (found.stages, found.replicas) == ({2: 1}, {0})
    assert (found.host_blocks, found.host_gib, found.scheduler_blocks) == ([1024], [0.06], 512)
    assert (found.async_asked, found.async_scheduling) == (False, False)
