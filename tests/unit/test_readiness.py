"""When a server counts as serving: stages, progress, deadlines, and strangers."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from serve_repro.launch.failure import PointFailed
from serve_repro.launch.leftovers import processes_of
from serve_repro.launch.readiness import BootLog, wait_until_serving
from serve_repro.plan.build import make_plan
from serve_repro.plan.model import Plan
from serve_repro.recipe.load import load
from serve_repro.recipe.recipe import Recipe
from serve_repro.recipe.site import Site

from .processes import new_run_id, python

BASE = Path(__file__).parents[2]
FAKE_API = (Path(__file__).parent / "fake_api.py").read_text(encoding="utf-8")

GOOD: dict[str, Any] = {
    "health": 200,
    "models": [{"id": "serve-repro/tiny-llama", "max_model_len": 32768, "root": "/model"}],
    "completion": {"usage": {"completion_tokens": 8}},
}


@pytest.fixture(scope="module")
def plan() -> Plan:
    """The tiny plan with the deadlines of an impatient person."""
    recipe = load(BASE / "config/recipes/tiny-cpu-tp1pp2.yaml", Recipe)
    made = make_plan(recipe, load(BASE / "config/sites/laptop.yaml", Site), 2)
    return patient(made, boot_stall_s=5, boot_limit_s=10, first_tokens_s=5)


def patient(plan: Plan, **deadlines: float) -> Plan:
    return plan.model_copy(update={"readiness": plan.readiness.model_copy(update=deadlines)})


@contextmanager
def serving(marked: bool = True, **behaviour: Any) -> Iterator[tuple[str, str]]:
    """A server with one fault, or none; gives (address, run id)."""
    run_id = new_run_id()
    words = json.dumps(GOOD | behaviour)
    with python(FAKE_API, words, run_id=run_id if marked else None) as process:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}", run_id


def wait(
    plan: Plan,
    at: tuple[str, str],
    logs: list[Path] | None = None,
    watch: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    return wait_until_serving(
        plan, at[0], lambda: {found.pid for found in processes_of(at[1])}, logs or [], watch
    )


def test_a_healthy_server_of_the_right_model_that_brings_tokens_is_ready(plan: Plan) -> None:
    stages: list[str] = []
    with serving() as at:
        found = wait(plan, at, watch=stages.append)
    assert found["model"] == GOOD["models"][0]
    assert 0 < found["seconds"]["healthy"] <= found["seconds"]["first_tokens"] < 5
    assert set(stages) == {"boot", "ready"}


@pytest.mark.parametrize(
    ("models", "told"),
    [
        (
            [{"id": "other/model", "max_model_len": 32768}],
            "offers ['other/model'], expected serve-repro/tiny-llama",
        ),
        ([], "offers [], expected serve-repro/tiny-llama"),
        (
            [{"id": "serve-repro/tiny-llama", "max_model_len": 16384}],
            "max_model_len is 16384, expected 32768",
        ),
        ([{"id": "serve-repro/tiny-llama"}], "max_model_len is None, expected 32768"),
        ([{"name": "no id"}], "/v1/models has no usable answer"),
        (None, "/v1/models has no usable answer"),
    ],
)
def test_another_model_or_length_is_not_ready(plan: Plan, models: object, told: str) -> None:
    with serving(models=models) as at, pytest.raises(PointFailed) as failed:
        wait(plan, at)
    assert failed.value.stage == "ready"
    assert told in failed.value.reason


@pytest.mark.parametrize(
    ("completion", "told"),
    [
        ({"usage": {"completion_tokens": 0}}, "the completion has 0 tokens, expected 8"),
        ({"usage": {"completion_tokens": 1}}, "the completion has 1 tokens, expected 8"),
        ({"usage": None}, "the completion has None tokens, expected 8"),
        ({}, "the completion has None tokens, expected 8"),
        (500, "brought no tokens: status 500: EngineDeadError"),
        ("<html>a proxy</html>", "brought no tokens: not JSON: <html>"),
        ("[]", "brought no tokens: not an answer"),
    ],
)
def test_health_without_real_tokens_is_not_ready(plan: Plan, completion: object, told: str) -> None:
    with serving(completion=completion) as at, pytest.raises(PointFailed) as failed:
        wait(plan, at)
    assert failed.value.stage == "ready"
    assert told in failed.value.reason


def test_a_completion_that_hangs_ends_by_its_deadline(plan: Plan) -> None:
    began = time.monotonic()
    with (
        serving(completion="hang") as at,
        pytest.raises(PointFailed, match="healthy, but a completion brought no tokens"),
    ):
        wait(patient(plan, first_tokens_s=0.6), at)
    assert time.monotonic() - began < 4


def test_a_rank_that_dies_while_the_completion_hangs_is_noticed_at_once(plan: Plan) -> None:
    def watch(stage: str) -> None:
        if stage == "ready":
            raise PointFailed(stage, "rank 1 died")

    began = time.monotonic()
    with serving(completion="hang") as at, pytest.raises(PointFailed, match="rank 1 died"):
        wait(patient(plan, first_tokens_s=30), at, watch=watch)
    assert time.monotonic() - began < 4


def test_a_stranger_on_the_port_is_never_measured(plan: Plan) -> None:
    """It is healthy, offers the right model and brings tokens: and it is not ours."""
    with serving(marked=False) as at, pytest.raises(PointFailed) as failed:
        wait(plan, at)
    port = at[0].rpartition(":")[2]
    assert failed.value.stage == "ready"
    assert f"a stranger listens on port {port}: process " in failed.value.reason


def test_a_server_that_has_overwritten_its_mark_is_known_by_its_session(plan: Plan) -> None:
    """As vLLM's processes do, when they set their titles."""
    with serving(marked=False) as (base, run_id):
        ours = {found.pid for found in processes_of(run_id, sessions={os.getsid(0)})}
        wait_until_serving(plan, base, lambda: ours, [], lambda _: None)


def test_no_server_at_all_ends_by_the_absolute_limit_however_much_it_logs(
    plan: Plan, tmp_path: Path
) -> None:
    log = tmp_path / "server.log"
    with (
        serving(health=503) as at,
        pytest.raises(PointFailed, match=r"boot: not healthy after 1 s \(boot_limit_s\)"),
    ):
        wait(patient(plan, boot_limit_s=1, boot_stall_s=0.5), at, [log], lambda _: add(log, "news"))


def test_silence_ends_the_wait_long_before_the_limit(plan: Plan, tmp_path: Path) -> None:
    began = time.monotonic()
    with (
        serving(health=503) as at,
        pytest.raises(PointFailed, match=r"no progress in any rank's log for 0 s \(boot_stall_s\)"),
    ):
        wait(patient(plan, boot_stall_s=0.4, boot_limit_s=60), at, [tmp_path / "none.log"])
    assert time.monotonic() - began < 4


@pytest.mark.parametrize(
    "line",
    [
        "INFO Waiting for 1 local, 0 remote core engine proc(s) to start.",
        "DEBUG Waiting for 2 remote core engine proc(s) to connect",
        "INFO No available shared memory broadcast block found in 60 seconds.",
    ],
)
def test_lines_that_only_say_that_it_waits_are_no_progress(
    plan: Plan, tmp_path: Path, line: str
) -> None:
    log = tmp_path / "server.log"
    with serving(health=503) as at, pytest.raises(PointFailed, match="boot_stall_s"):
        wait(patient(plan, boot_stall_s=0.4, boot_limit_s=60), at, [log], lambda _: add(log, line))


def test_progress_in_any_ranks_log_extends_the_wait(plan: Plan, tmp_path: Path) -> None:
    """A slow healthy server: longer than the stall allows, and never silent for as long as that."""
    flag, logs = tmp_path / "up", [tmp_path / "rank0.log", tmp_path / "rank1.log"]
    began = time.monotonic()

    def watch(stage: str) -> None:
        add(logs[1], f"shard at {time.monotonic()}")
        if time.monotonic() - began > 3:
            flag.touch()

    with serving(health=str(flag)) as at:
        found = wait(patient(plan, boot_stall_s=2, boot_limit_s=30), at, logs, watch)
    assert found["seconds"]["healthy"] > 2.5


def add(log: Path, line: str) -> None:
    with log.open("a", encoding="utf-8") as stream:
        stream.write(line + "\n")


def test_only_what_is_new_counts_as_progress(tmp_path: Path) -> None:
    logs = [tmp_path / "a.log", tmp_path / "b.log"]
    boot = BootLog(logs)
    assert not boot.progressed()
    add(logs[1], "Starting")
    assert boot.progressed()
    assert not boot.progressed()
    add(logs[0], "Waiting for 1 local, 0 remote core engine proc(s) to start.")
    assert not boot.progressed()


def test_each_stage_is_told_once_a_rank(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = tmp_path / "server.log"
    boot = BootLog([log])
    with caplog.at_level(logging.INFO, "serve_repro"):
        for line in (
            "world_size=2 rank=0 local_rank=0 distributed_init_method=tcp://127.0.0.1:18682",
            "INFO rank 0 in world size 2 is assigned as DP rank 0",
            "INFO Starting to load model /model...",
            "Loading safetensors checkpoint shards:  50% Completed | 1/2",
            "INFO Loading weights took 0.02 seconds",
            "INFO:     Application startup complete.",
        ):
            add(log, line)
            boot.progressed()
    assert [record.getMessage() for record in caplog.records] == [
        "rank 0: ranks have met",
        "rank 0: loading weights",
        "rank 0: weights loaded",
        "rank 0: API is up",
    ]
