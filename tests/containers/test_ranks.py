"""Ranks in real containers on two simulated nodes: started, measured, and gone on every way out."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from serve_repro.image.engine import engine_of
from serve_repro.image.pull import have
from serve_repro.launch import leftovers
from serve_repro.launch.failure import PointFailed
from serve_repro.launch.ranks import Ranks
from serve_repro.patches.attestation import read_attestations
from serve_repro.plan.build import make_plan
from serve_repro.plan.model import Plan
from serve_repro.point.measure import measure
from serve_repro.point.proofs import Proofs
from serve_repro.point.values import bind
from serve_repro.recipe.load import load
from serve_repro.recipe.recipe import Recipe
from serve_repro.recipe.site import Site
from serve_repro.weights.locate import Found
from serve_repro.weights.manifest import manifest
from serve_repro.weights.receipt import verify

from .conftest import PACKAGES, Image, Push, resolved, site_of
from .nodes import Node
from .oci_layout import Layer, layer

BASE = Path(__file__).parents[2]
REVISION = "1" * 40

# What a rank sees and may do, told in its log; then the stand-in for vLLM.
_VLLM = b"""#!/usr/bin/python3
import importlib.metadata, json, multiprocessing, os, runpy, sys
multiprocessing.current_process().name = "VllmWorker-0"
for plugin in importlib.metadata.entry_points(group="vllm.general_plugins"):
    plugin.load()()
from victim import part
model = sys.argv[2]
told = {"argv": sys.argv[:2], "patched": part.answer(), "user": os.getuid()}
told["config"] = open(model + "/config.json").read()
for place in (model, "/patches"):
    try:
        open(place + "/mine", "w")
        told[place] = "written"
    except OSError as error:
        told[place] = os.strerror(error.errno)
for place in ("/results", "/cache", "/tmp", os.environ["HOME"]):
    open(place + "/mine", "w").close()
told["shared"] = os.statvfs("/dev/shm").f_blocks
print("SEEN " + json.dumps(told), flush=True)
runpy.run_path("/usr/local/lib/serve_stub.py", run_name="__main__")
"""

_VICTIM = b"def answer():\n    return 'plain'\n"
_HOOK = """
def install():
    from victim import part
    part.answer = lambda: "patched"
    return ["part.answer"]
"""
_SET = {
    "id": "fake",
    "hook": "fake",
    "targets": [{"module": "victim.part", "sha256": {"victim 1": hashlib.sha256(_VICTIM).hexdigest()}}],
    "superseded_by": None,
    "processes": ["worker"],
}


@pytest.fixture(scope="session")
def telling(push: Push, base: Layer) -> Image:
    """An image whose `vllm` tells what it sees, behind ENTRYPOINT ["vllm"]."""
    stub = (BASE / "tests/stubs/serve_stub.py").read_bytes()
    files = {
        "usr/local/bin/vllm": (_VLLM, 0o755),
        "usr/local/lib/serve_stub.py": (stub, 0o644),
        f"{PACKAGES}/victim/__init__.py": (b"", 0o644),
        f"{PACKAGES}/victim/part.py": (_VICTIM, 0o644),
    }
    return push("org/ranks", [base, layer(files)])


class Setup:
    """A plan whose ranks go to one node each, and the proofs that it stands on."""

    def __init__(self, nodes: list[Node], image: Image, folder: Path) -> None:
        self.nodes = nodes
        self.folder = folder
        self.attempt = folder / "attempt"
        found = resolved(image)
        for node in nodes:
            have(engine_of(site_of(node)), found, node.name)
        target = engine_of(site_of(nodes[0])).target(found)
        self.plan = self._plan(image)
        receipt = {"node": "localhost", "digest": image.digest, "target": target}
        self.proofs = Proofs(
            weights=[self._weights()],
            image=[receipt],
            patches=[{"node": "localhost", "digest": "sha256:patches"}],
            patch_folder=folder / "patches",
            dataset={"digest": "sha256:traces", "folder": str(folder)},
            client={"digest": "sha256:client"},
        )
        hooks = folder / "patches/hooks"
        shutil.copytree(BASE / "patches/hooks", hooks, ignore=shutil.ignore_patterns("__pycache__"))
        (hooks / "serve_repro_hooks/fake.py").write_text(_HOOK, encoding="utf-8")
        overlay: dict[str, Any] = {"patches": [], "files": [], "roots": {}}
        for name, content in (("set", {"hooks": [_SET]}), ("overlay", overlay)):
            (folder / f"patches/{name}.json").write_text(json.dumps(content), encoding="utf-8")

    def _plan(self, image: Image) -> Plan:
        recipe = load(BASE / "config/recipes/tiny-cpu-tp1pp2.yaml", Recipe)
        kept = recipe.model_dump(exclude_unset=True) | {"patches": ["fake"], "kv_offload": None}
        kept["image"] = {"reference": image.reference}
        kept["replay"]["duration_s"] = 3
        del kept["model"]["made"]
        laptop = load(BASE / "config/sites/laptop.yaml", Site).model_dump(exclude_unset=True)
        plans = []
        for node in self.nodes:
            container = {"command": node.command, "images": str(node.images)}
            site = laptop | {"runtime": node.runtime, "container": container}
            site["cache_root"] = str(self.folder / "caches")
            plans.append(make_plan(Recipe.model_validate(kept), Site.model_validate(site), 2))
        plan = plans[0]
        words = plan.client.command.argv
        stub = [sys.executable, str(BASE / "tests/stubs/client_stub.py"), *words[3:]]
        command = plan.client.command.model_copy(update={"argv": stub})
        client = plan.client.model_copy(update={"command": command})
        ranks = [plan.ranks[rank] for rank, plan in enumerate(plans)]
        return plan.model_copy(update={"ranks": ranks, "client": client})

    def _weights(self) -> dict[str, Any]:
        """A model in hub layout: its files are links out of the folder that is served."""
        hub = self.folder / "models--org--tiny"
        snapshot, blobs = hub / "snapshots" / REVISION, hub / "blobs"
        snapshot.mkdir(parents=True)
        blobs.mkdir()
        files = {"config.json": b'{"here": 1}', "model.safetensors": b"\x02" + bytes(7) + b"{}"}
        for name, content in files.items():
            (blobs / f"blob-{name}").write_bytes(content)
            (snapshot / name).symlink_to(f"../../blobs/blob-{name}")
        listed = manifest("org/tiny", Found(snapshot, "hub", REVISION))
        models = [verify(listed, "localhost")]
        return {"node": "localhost", "digest": listed["digest"], "models": models}

    def started(self, run_id: str) -> Ranks:
        """Both ranks, up."""
        values = bind(
            self.plan, self.proofs, ["localhost"] * 2, run_id, self.attempt, self.folder / "client"
        )
        ranks = Ranks(self.plan, values, self.attempt)
        ranks.start()
        try:
            until(
                lambda: all("world size" in self.log(rank) for rank in (0, 1)),
                lambda: self.log(0) + self.log(1),
            )
            if self.plan.ranks[0].first_process:
                until(lambda: all("contained" in rank.said for rank in ranks.started))
        except BaseException:
            ranks.stop()
            raise
        return ranks

    def log(self, rank: int) -> str:
        path = self.attempt / f"rank{rank}/server.log"
        return path.read_text(encoding="utf-8") if path.is_file() else ""

    def containers(self) -> list[str]:
        """Names of all containers on both nodes, in any state."""
        if self.nodes[0].runtime not in ("docker", "podman"):
            return []
        words = ["ps", "--all", "--format", "{{.Names}}"]
        return [name for node in self.nodes for name in node.run(*words).split()]


def until(
    true: Callable[[], object], why: Callable[[], str] = lambda: "waited in vain", limit_s: float = 40
) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < deadline, why()
        time.sleep(0.05)


def nothing_left(setup: Setup, run_id: str) -> None:
    assert setup.containers() == []
    assert leftovers.processes_of(run_id) == []


@pytest.fixture
def setup(nodes: list[Node], telling: Image, tmp_path: Path) -> Setup:
    return Setup(nodes, telling, tmp_path)


def of_engine(setup: Setup) -> None:
    if setup.nodes[0].runtime not in ("docker", "podman"):
        pytest.skip("its containers are children of the rank: the tests of processes cover them")


def test_a_whole_point_is_measured_in_containers(setup: Setup) -> None:
    """Entrypoint overridden, links into the model's mount, no write to it, nothing left."""
    point = measure(setup.plan, setup.proofs, setup.folder / "point")
    setup.attempt = setup.folder / "point" / point["attempt"]
    assert point["status"] == "valid", f"{point['reason']}\n{setup.log(0)}\n{setup.log(1)}"
    for rank in (0, 1):
        (line,) = [line for line in setup.log(rank).splitlines() if line.startswith("SEEN ")]
        told = json.loads(line.removeprefix("SEEN "))
        assert told["argv"] == ["/usr/local/bin/vllm", "serve"]
        assert told["patched"] == "patched"
        assert told["config"] == '{"here": 1}'
        shared = os.statvfs("/dev/shm").f_blocks  # of which apptainer gives a part
        assert told["shared"] >= (shared // 4 if setup.nodes[0].runtime == "apptainer" else shared)
        model = f"/model/snapshots/{REVISION}"
        assert (told[model], told["/patches"]) == ("Read-only file system",) * 2
        assert (setup.attempt / f"rank{rank}/mine").is_file()
        (said,) = read_attestations(setup.attempt / f"rank{rank}/attestations.jsonl")
        assert (said["patch"], said["rank"], said["installed"]) == ("fake", rank, True)
        (cache,) = (setup.folder / "caches").glob(f"*/rank{rank}")
        assert (cache / "mine").is_file()
        started = json.loads((setup.attempt / f"rank{rank}/started.json").read_text())
        assert not Path(started["scratch"]).exists()
    nothing_left(setup, json.loads((setup.attempt / "launch.json").read_text())["values"][0]["RUN_ID"])


def test_a_killed_client_of_the_engine_ends_the_rank_and_leaves_no_container(setup: Setup) -> None:
    of_engine(setup)
    ranks = setup.started("killed-client")
    assert len(setup.containers()) == 2
    listening = ranks.processes_here()
    assert len(listening) > 1
    psutil.Process(ranks.started[1].said["started"]["pid"]).send_signal(signal.SIGKILL)

    def noticed() -> bool:
        try:
            ranks.check("boot")
        except PointFailed:
            return True
        return False

    until(noticed)
    ranks.stop()
    nothing_left(setup, "killed-client")


def test_a_killed_holder_leaves_no_container(setup: Setup) -> None:
    of_engine(setup)
    ranks = setup.started("killed-holder")
    for rank in ranks.started:
        rank.process.kill()
        rank.process.wait()
    ranks.stop()
    nothing_left(setup, "killed-holder")


def test_the_supervisors_death_leaves_no_container(setup: Setup) -> None:
    """Its pipes end, and each holder ends its rank."""
    ranks = setup.started("killed-supervisor")
    for rank in ranks.started:
        rank.release()
    until(lambda: all(rank.process.poll() is not None for rank in ranks.started))
    nothing_left(setup, "killed-supervisor")


def test_an_engine_that_does_not_answer_is_named(setup: Setup, tmp_path: Path) -> None:
    if setup.nodes[0].runtime != "docker":
        pytest.skip("only Docker has a daemon")
    dead = ["docker", "--host", f"unix://{tmp_path}/none.sock"]
    alive = setup.nodes[1].command
    for rank in setup.plan.ranks:
        commands = [rank.start, *rank.cleanup, rank.left, rank.first_process]
        for command in [command for command in commands if command is not None]:
            words = command.argv[command.argv.index("docker") + 1 :]
            command.argv[:] = [*dead, *words]
    assert alive != dead
    values = bind(
        setup.plan, setup.proofs, ["localhost"] * 2, "dead-engine", setup.attempt, tmp_path / "client"
    )
    ranks = Ranks(setup.plan, values, setup.attempt)
    ranks.start()
    until(lambda: all("ended" in rank.said for rank in ranks.started))
    with pytest.raises(PointFailed, match="the node's Docker daemon does not answer"):
        ranks.check("boot")
    with pytest.raises(PointFailed, match="perhaps a container: its engine does not answer"):
        ranks.stop()
