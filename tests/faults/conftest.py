"""Points that the project's own program measures with the real client, on a server that goes wrong."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest
import yaml

from serve_repro.plan.build import make_plan
from serve_repro.plan.model import Plan
from serve_repro.recipe.recipe import Recipe
from serve_repro.recipe.site import Site
from serve_repro.table.partial import status_row
from tests.end_to_end.conftest import (
    BASE,
    Checkout,
    assert_nothing_left,
    checkout_into,
    environments,
    finish,
    read,
    wait_for,
)

__all__ = ["environments"]

MOCK = Path(__file__).parent / "mock_server.py"
LANES = 3
WINDOW_S = 15
AT_ONCE = 4
"""Points that are measured side by side: they mostly wait."""
LIMIT_S = 240

TRACES: dict[str, Any] = {
    "sessions": 6,
    "turns": 8,
    "subagent_every": 3,
    "shared_prefix_blocks": 20,
    "output_tokens": [20, 60],
    "think_s": [0.3, 0.6, 1.0],
    "seed": 1,
}
MORE_TRACES = {"made-gaps": TRACES | {"think_s": [0.3, 0.3, 0.3, 60.0]}}
"""Traces besides the tiny recipe's own."""


class Fault(NamedTuple):
    """One way to go wrong."""

    server: dict[str, Any] = {}
    """What the server does: see mock_server.py."""
    replay: dict[str, Any] = {}
    """Other keys of the recipe's replay."""
    signal: int | None = None
    """Sent in mid-replay,"""
    to: str = "client"
    """to the client or to the point's own program."""


class Measured(NamedTuple):
    """What became of one point."""

    folder: Path
    code: int
    output: str

    @property
    def attempt(self) -> Path:
        """Its only attempt."""
        (attempt,) = (self.folder / "attempts").glob("*/")
        return attempt

    @property
    def point(self) -> dict[str, Any]:
        """What the attempt says of itself."""
        found: dict[str, Any] = read(self.attempt / "point.json")
        return found

    def gates(self) -> dict[str, str]:
        """{gate: outcome} of all gates that were no pass."""
        return {g["gate"]: g["outcome"] for g in self.point["gates"] if g["outcome"] != "pass"}


def stub_python(path: Path, program: Path) -> None:
    """An interpreter that runs the mock where vLLM would be called."""
    path.parent.mkdir(parents=True)
    real, mock = shlex.quote(sys.executable), shlex.quote(str(program))
    path.write_text(
        f'#!/bin/sh\ncase "$*" in *vllm.entrypoints*) exec {real} {mock} "$@";;'
        f' *) exec {real} "$@";; esac\n',
        encoding="utf-8",
    )
    path.chmod(0o755)


class Bench:
    """A checkout with every receipt of some recipes, in which points are measured."""

    def __init__(self, folder: Path, environments: Path, recipes: list[dict[str, Any]]) -> None:
        self.checkout: Checkout = checkout_into(folder, folder / "none")
        self.folder = folder
        (folder / ".envs").unlink()
        stub_python(folder / ".envs/serve-mock/bin/python", MOCK)
        for name in ("client", "serve-cpu"):
            (folder / ".envs" / name).symlink_to(environments / name)
        (folder / "envs/serve-mock").mkdir()
        (folder / "envs/serve-mock/lock.txt").write_text("# nothing is pinned\n", encoding="utf-8")
        names = [recipe["name"] for recipe in recipes]
        for recipe in recipes:
            self._write(f"config/recipes/{recipe['name']}.yaml", recipe)
        self._write("config/bench.yaml", {"recipes": names, "site": "laptop"})
        receipts = [
            f"results/{name}/{kind}/nodes/localhost.json"
            for name in names
            for kind in ("weights", "image", "patches")
        ]
        code, output = self.checkout.run(
            *receipts,
            "resources/made/traces/made-agentic-tiny/manifest.json",
            ".envs/client/environment.json",
            *["--profile", "local", "--configfile", "config/bench.yaml"],
        )
        assert code == 0, output[-3000:]
        for name, numbers in MORE_TRACES.items():
            target = f"resources/made/traces/{name}/manifest.json"
            words = ["--numbers", json.dumps(numbers), "--output", target, "--log", f"logs/{name}.log"]
            subprocess.run([sys.executable, "scripts/make_traces.py", *words], cwd=folder, check=True)

    def _write(self, path: str, document: dict[str, Any]) -> None:
        (self.folder / path).write_text(yaml.safe_dump(document), encoding="utf-8")

    def start(self, plan: Plan, receipts: str, traces: str) -> tuple[subprocess.Popen[str], Path]:
        """Start scripts/replay.py on a plan; returns it and the point's folder.

        Args:
            plan: the point; its recipe's name is that of the folder.
            receipts: the recipe whose receipts it stands on.
            traces: name of the traces.
        """
        proven, node = Path("results") / receipts, "nodes/localhost.json"
        target = Path("results") / plan.recipe / f"conc{plan.concurrency}"
        folder = self.folder / target
        folder.mkdir(parents=True)
        (folder / "plan.json").write_text(plan.model_dump_json(), encoding="utf-8")
        process = subprocess.Popen(
            [
                *[sys.executable, "scripts/replay.py", "--plan", str(target / "plan.json")],
                *["--weights", str(proven / "weights" / node), "--image", str(proven / "image" / node)],
                *["--patches", str(proven / "patches" / node)],
                *["--patch-set", str(proven / "patches/set.json")],
                *["--dataset", f"resources/made/traces/{traces}/manifest.json"],
                *["--client", ".envs/client/environment.json"],
                *["--summary", str(folder / "summary.csv")],
                *["--output", str(target / "replay.json"), "--log", f"logs/{plan.recipe}.log"],
            ],
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        return process, folder


def recipe_of(name: str) -> dict[str, Any]:
    """A shipped recipe, as a document to change."""
    text = (BASE / f"config/recipes/{name}.yaml").read_text(encoding="utf-8")
    document: dict[str, Any] = yaml.safe_load(text)
    return document


def site_with_ports(first: int) -> Site:
    """The laptop, with ports that no other point of these tests takes."""
    site = yaml.safe_load((BASE / "config/sites/laptop.yaml").read_text(encoding="utf-8"))
    return Site.model_validate(site | {"ports": {"first": first, "last": first + 19}})


def mock_recipe() -> dict[str, Any]:
    """The tiny recipe, served by the mock."""
    recipe = recipe_of("tiny-cpu-tp1pp2") | {
        "name": "mock",
        "patches": [],
        "kv_offload": None,
        "concurrencies": [LANES],
        "image": {"environment": "serve-mock"},
        "topology": {"tensor_parallel": 1, "pipeline_parallel": 1},
    }
    recipe["replay"] |= {"duration_s": WINDOW_S, "drain_s": 3, "trace_idle_gap_cap_s": 3}
    return recipe


def measure(bench: Bench, name: str, fault: Fault, number: int) -> Measured:
    """Measure one point that meets a fault."""
    recipe = mock_recipe() | {"name": name}
    recipe["replay"] |= fault.replay
    recipe["serve"]["env"]["MOCK_FAULT"] = json.dumps(fault.server)
    plan = make_plan(Recipe.model_validate(recipe), site_with_ports(19000 + 20 * number), LANES)
    process, folder = bench.start(plan, "mock", recipe["replay"]["dataset"]["name"])
    if fault.signal is not None:
        strike(process, folder, fault)
    return Measured(folder, *finish(process, LIMIT_S))


def strike(process: subprocess.Popen[str], folder: Path, fault: Fault) -> None:
    """Send the fault's signal once the window has its first records."""
    assert fault.signal is not None

    def in_window() -> Path | None:
        for path in folder.glob("attempts/*/client/artifacts/profile_export.jsonl"):
            if '"profiling"' in path.read_text(encoding="utf-8"):
                return path.parents[2]
        return None

    wait_for("the first records of the window", in_window, LIMIT_S)
    time.sleep(2)
    if fault.to == "client":
        children = psutil.Process(process.pid).children()
        (client,) = (child for child in children if Path(child.cwd()).name == "client")
        client.send_signal(signal.Signals(fault.signal))
    else:
        process.send_signal(fault.signal)


def assert_no_row(bench: Bench, name: str, concurrency: int, result: Measured) -> dict[str, Any]:
    """No result, no summary, nothing left; returns the partial table's row."""
    assert result.code != 0
    replay = result.folder / "replay.json"
    assert not replay.exists()
    summary = result.folder / "summary.csv"
    words = [sys.executable, "scripts/summarise.py", "--replays", str(replay)]
    words += ["--output", str(summary), "--log", "logs/summarise.log"]
    run = subprocess.run(words, cwd=bench.folder, capture_output=True, text=True)
    assert run.returncode != 0
    assert not summary.exists()
    row = status_row(replay)
    assert (row["recipe"], row["concurrency"]) == (name, concurrency)
    assert not [column for column in row if column.endswith(("_tok_s", "_ms", "_gpu"))]
    assert_nothing_left(result.attempt)
    return row


@pytest.fixture(scope="session")
def bench(environments: Path, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """The one checkout of these tests."""
    folder = tmp_path_factory.mktemp("faults") / "checkout"
    return Bench(folder, environments, [mock_recipe()])


@pytest.fixture(scope="session")
def measured(bench: Bench, request: pytest.FixtureRequest) -> Callable[[str], Measured]:
    """The points of all faults that this run's tests ask for, measured side by side."""
    from .test_faults import FAULTS

    names: list[str] = [
        str(item.callspec.params["fault"])
        for item in request.session.items
        if isinstance(item, pytest.Function) and hasattr(item, "callspec")
        if "fault" in item.callspec.params
    ]
    wanted = list(dict.fromkeys(names))
    pool = ThreadPoolExecutor(AT_ONCE)
    began = {
        name: pool.submit(measure, bench, name, FAULTS[name], number)
        for number, name in enumerate(wanted)
    }
    return lambda name: began[name].result()
