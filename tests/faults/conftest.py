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
from tests.end_to_end.conftest import (
    BASE,
    Checkout,
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
    expect: dict[str, Any] = {}
    """Other expectations than what is served."""
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
    """A checkout with every receipt of the recipe `mock`, in which points are measured."""

    def __init__(self, folder: Path, environments: Path) -> None:
        self.checkout: Checkout = checkout_into(folder, folder / "none")
        self.folder = folder
        (folder / ".envs").unlink()
        stub_python(folder / ".envs/serve-mock/bin/python", MOCK)
        for name in ("client", "serve-cpu"):
            (folder / ".envs" / name).symlink_to(environments / name)
        (folder / "envs/serve-mock").mkdir()
        (folder / "envs/serve-mock/lock.txt").write_text("# nothing is pinned\n", encoding="utf-8")
        text = (BASE / "config/recipes/tiny-cpu-tp1pp2.yaml").read_text(encoding="utf-8")
        self.recipe: dict[str, Any] = yaml.safe_load(text)
        self.recipe |= {
            "name": "mock",
            "patches": [],
            "kv_offload": None,
            "concurrencies": [LANES],
            "image": {"environment": "serve-mock"},
            "topology": {"tensor_parallel": 1, "pipeline_parallel": 1},
        }
        self.recipe["replay"] |= {"duration_s": WINDOW_S, "drain_s": 3, "trace_idle_gap_cap_s": 3}
        self._write("config/recipes/mock.yaml", self.recipe)
        self._write("config/mock.yaml", {"recipes": ["mock"], "site": "laptop"})
        code, output = self.checkout.run(
            *(f"results/mock/{kind}/nodes/localhost.json" for kind in ("weights", "image", "patches")),
            "resources/made/traces/made-agentic-tiny/manifest.json",
            ".envs/client/environment.json",
            *["--profile", "local", "--configfile", "config/mock.yaml"],
        )
        assert code == 0, output[-3000:]
        for name, numbers in MORE_TRACES.items():
            target = f"resources/made/traces/{name}/manifest.json"
            words = ["--numbers", json.dumps(numbers), "--output", target, "--log", f"logs/{name}.log"]
            subprocess.run([sys.executable, "scripts/make_traces.py", *words], cwd=folder, check=True)

    def _write(self, path: str, document: dict[str, Any]) -> None:
        (self.folder / path).write_text(yaml.safe_dump(document), encoding="utf-8")

    def plan(self, name: str, fault: Fault, number: int) -> Plan:
        """The plan of a point that meets a fault; each has its own ports."""
        document = json.loads(json.dumps(self.recipe)) | {"name": name}
        document["replay"] |= fault.replay
        document["serve"]["env"]["MOCK_FAULT"] = json.dumps(fault.server)
        site = yaml.safe_load((BASE / "config/sites/laptop.yaml").read_text(encoding="utf-8"))
        site["ports"] = {"first": 19000 + 20 * number, "last": 19019 + 20 * number}
        plan = make_plan(Recipe.model_validate(document), Site.model_validate(site), LANES)
        return plan.model_copy(update={"expect": plan.expect.model_copy(update=fault.expect)})

    def measure(self, name: str, fault: Fault, number: int) -> Measured:
        """Measure one point with scripts/replay.py."""
        results, node = Path("results/mock"), "nodes/localhost.json"
        target = Path("results") / name / f"conc{LANES}"
        folder = self.folder / target
        folder.mkdir(parents=True)
        plan = self.plan(name, fault, number)
        (folder / "plan.json").write_text(plan.model_dump_json(), encoding="utf-8")
        traces = fault.replay.get("dataset", self.recipe["replay"]["dataset"])["name"]
        process = subprocess.Popen(
            [
                *[sys.executable, "scripts/replay.py", "--plan", str(target / "plan.json")],
                *["--weights", str(results / "weights" / node)],
                *["--image", str(results / "image" / node)],
                *["--patches", str(results / "patches" / node)],
                *["--patch-set", str(results / "patches/set.json")],
                *["--dataset", f"resources/made/traces/{traces}/manifest.json"],
                *["--client", ".envs/client/environment.json"],
                *["--summary", str(folder / "summary.csv")],
                *["--output", str(target / "replay.json"), "--log", f"logs/{name}.log"],
            ],
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
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


@pytest.fixture(scope="session")
def bench(environments: Path, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """The one checkout of these tests."""
    return Bench(tmp_path_factory.mktemp("faults") / "checkout", environments)


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
        name: pool.submit(bench.measure, name, FAULTS[name], number)
        for number, name in enumerate(wanted)
    }
    return lambda name: began[name].result()
