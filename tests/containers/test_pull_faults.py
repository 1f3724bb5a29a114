"""What can go wrong with a pull: each ends with its own message, and with no half image."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from serve_repro.errors import UserError
from serve_repro.image.engine import Engine, engine_of
from serve_repro.image.pull import have
from serve_repro.image.registry import resolve
from serve_repro.image.resolved import Image as Resolved
from tests.registry.server import Registry

from .conftest import Push, resolved, site_of
from .fault_proxy import Fault, FaultProxy, fault_proxy
from .nodes import Node, apptainer_node, docker_node, podman_node, small_disk
from .oci_layout import layer, write_layout

PROGRAM = Path(__file__).parents[2] / "scripts/pull_image.py"
LAYER = 3_000_000
LONG = 24_000_000  # more than sockets between registry and engine hold by themselves
# User u, password p.
_HTPASSWD = "u:$2b$04$PH/WXHFa4UMNAQRK8ggZE.Dl66L9j4GPd06/jua5V1zeElXdL.c6O\n"
_AUTH = "auth: {{htpasswd: {{realm: test, path: {path}}}}}"


@pytest.fixture
def node(nodes: list[Node]) -> Node:
    """The second of two: the first has pulled more."""
    return nodes[1]


@pytest.fixture
def engine(node: Node) -> Engine:
    return engine_of(site_of(node))


@pytest.fixture
def proxy(push: Push) -> Iterator[FaultProxy]:
    address = push("org/base", [layer({"a": (b"", 0o644)})]).name.partition("/")[0]
    with fault_proxy(address) as started:
        yield started


@pytest.fixture
def image(push: Push, proxy: FaultProxy) -> Resolved:
    """An image of some size that no node has seen, to be pulled through the proxy."""
    pushed = push("org/fresh", [layer({"a": (os.urandom(LAYER), 0o644)})])
    return resolved(pushed)._replace(name=f"{proxy.address}/org/fresh")


def nothing_half(engine: Engine, image: Resolved, node: Node) -> None:
    """No image, by the engine's own account, and no part of a file."""
    nothing_whole(engine, image, node)
    if node.images.exists():
        assert not list(node.images.glob("*.part"))


def nothing_whole(engine: Engine, image: Resolved, node: Node) -> None:
    """No image, by the engine's own account, and no file that could be taken for one."""
    assert engine.present(image) is None
    if node.images.exists():
        left = [path.name for path in node.images.iterdir() if path.suffix not in (".work", ".part")]
        assert not [name for name in left if image.digest.removeprefix("sha256:") in name]
    else:
        assert image.config.removeprefix("sha256:") not in node.run("image", "ls", "-aq", "--no-trunc")


def test_a_digest_that_the_registry_no_longer_has(engine: Engine, image: Resolved, node: Node) -> None:
    gone = image._replace(digest=f"sha256:{'d' * 64}")
    with pytest.raises(
        UserError, match=r"(?s)node n2: .*no such image or tag.*nightly tags are removed"
    ):
        have(engine, gone, "n2", waits=(0,))
    nothing_half(engine, gone, node)


def test_a_corrupt_blob(engine: Engine, image: Resolved, node: Node, proxy: FaultProxy) -> None:
    proxy.fault = Fault("flip", after=LAYER // 2)
    with pytest.raises(UserError, match="the registry sends wrong bytes"):
        have(engine, image, "n2", waits=(0,))
    nothing_half(engine, image, node)
    proxy.fault = None
    assert have(engine, image, "n2", waits=()).tries == 1


def test_a_connection_that_is_cut_is_tried_again(
    engine: Engine, image: Resolved, proxy: FaultProxy, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    proxy.fault = Fault("cut", after=LAYER // 2, times=2)
    tries = have(engine, image, "n2", waits=(0.1,) * 3).tries
    told = [record.getMessage() for record in caplog.records]
    assert sum("pulling" in line for line in told) == tries
    assert sum(" failed: " in line for line in told) == tries - 1


def test_a_registry_that_asks_to_wait(
    engine: Engine, image: Resolved, node: Node, proxy: FaultProxy
) -> None:
    proxy.fault = Fault("status", match="/manifests/", status=429)
    with pytest.raises(UserError, match="asks to wait: too many requests"):
        have(engine, image, "n2", waits=())
    nothing_half(engine, image, node)
    proxy.fault = Fault("status", match="/manifests/", status=429, times=2)
    assert have(engine, image, "n2", waits=(0.1, 0.1, 0.1)).tries >= 1


def log_in(node: Node, registry: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As user u, the way that each runtime knows."""
    if node.runtime == "enroot":
        line = f"machine {registry.partition(':')[0]} login u password p\n"
        (node.folder / "config/.credentials").write_text(line, encoding="utf-8")
    elif node.runtime == "apptainer":
        monkeypatch.setenv("APPTAINER_DOCKER_USERNAME", "u")
        monkeypatch.setenv("APPTAINER_DOCKER_PASSWORD", "p")
    else:
        plain = ["--tls-verify=false"] if node.runtime == "podman" else []
        node.run("login", *plain, "--username", "u", "--password", "p", registry)


def test_a_registry_that_wants_a_login(
    engine: Engine,
    image: Resolved,
    node: Node,
    short: Path,
    registry: Registry,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = short / "auth"
    folder.mkdir()
    (folder / "htpasswd").write_text(_HTPASSWD, encoding="utf-8")
    locked = Registry(folder, registry.storage, _AUTH.format(path=folder / "htpasswd"))
    try:
        locked.wait()
        there = image._replace(name=f"{locked.address}/org/fresh")
        with pytest.raises(UserError, match=r"(?s)wants a login.*looked for"):
            have(engine, there, "n2", waits=(0,))
        nothing_half(engine, there, node)
        log_in(node, locked.address, monkeypatch)
        assert have(engine, there, "n2", waits=()).tries == 1
    finally:
        locked.stop()
        shutil.rmtree(folder)


@contextmanager
def own_registry(short: Path) -> Iterator[tuple[Registry, FaultProxy, Resolved]]:
    """A registry that may be killed, an image in it, and a slow way to it."""
    with ExitStack() as stack:
        folder = short / "mortal"
        folder.mkdir()
        stack.callback(shutil.rmtree, folder)
        registry = Registry(folder)
        stack.callback(registry.stop)
        registry.wait()
        layout = folder / "layout"
        write_layout(layout, [layer({"a": (os.urandom(LONG), 0o644)})], ["vllm"])
        registry.push_layout(layout, "org/x", "v1")
        name = f"{registry.address}/org/x"
        found = resolve(f"{name}:v1", name, None, waits=())
        proxy = stack.enter_context(fault_proxy(registry.address))
        proxy.fault = Fault("slow", rate=LONG / 3)
        layers = [entry["digest"] for entry in found["layers"]]
        yield (
            registry,
            proxy,
            Resolved(
                f"{proxy.address}/org/x",
                found["digest"],
                found["platform"],
                found["config"],
                layers,
                found["bytes"],
            ),
        )


@contextmanager
def killed_in_the_middle(registry: Registry, proxy: FaultProxy, again: bool) -> Iterator[None]:
    """End the registry for good, or for a second, once a third of the layer has passed."""
    over = threading.Event()

    def act() -> None:
        while proxy.body_bytes < LONG / 3 and not over.wait(0.02):
            pass
        registry.process.kill()
        registry.process.wait()
        proxy.fault = None
        if again and not over.wait(1):
            registry.start()

    thread = threading.Thread(target=act)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_a_registry_killed_in_the_middle_for_good(engine: Engine, node: Node, short: Path) -> None:
    with own_registry(short) as (registry, proxy, image):
        with (
            killed_in_the_middle(registry, proxy, again=False),
            pytest.raises(UserError, match="the registry cannot be reached"),
        ):
            have(engine, image, "n2", waits=(0.1,))
        nothing_half(engine, image, node)


def test_a_registry_killed_in_the_middle_that_comes_back(engine: Engine, short: Path) -> None:
    with own_registry(short) as (registry, proxy, image):
        with killed_in_the_middle(registry, proxy, again=True):
            assert have(engine, image, "n2", waits=(1, 1, 1, 1)).tries >= 1
        assert engine.present(image) == image.config


def test_a_pull_that_was_killed_leaves_no_image_and_no_lock(
    engine: Engine, image: Resolved, node: Node, proxy: FaultProxy, tmp_path: Path
) -> None:
    """All of it, as Slurm does with a step."""
    layers = [{"digest": digest} for digest in image.layers]
    document = image._asdict() | {"image": image.name, "bytes": image.size, "layers": layers}
    (tmp_path / "image.json").write_text(json.dumps(document), encoding="utf-8")
    receipt = tmp_path / "receipt.json"
    words = ["--image", str(tmp_path / "image.json"), "--engine", json.dumps(site_of(node))]
    words += ["--node", "localhost", "--history", str(tmp_path / "h"), "--output", str(receipt)]
    proxy.fault = Fault("slow", rate=LAYER / 3)
    began = proxy.body_bytes
    step = subprocess.Popen([sys.executable, str(PROGRAM), *words], start_new_session=True)
    while proxy.body_bytes - began < LAYER / 2 and step.poll() is None:
        time.sleep(0.02)
    os.killpg(step.pid, signal.SIGKILL)
    step.wait()
    proxy.fault = None
    nothing_whole(engine, image, node)
    assert not receipt.exists()
    assert have(engine, image, "localhost", waits=(0.1,)).tries >= 1
    assert engine.present(image) == image.config


def test_too_little_space_is_told_before_anything_travels(
    engine: Engine, image: Resolved, node: Node, proxy: FaultProxy
) -> None:
    huge = image._replace(size=10**15)
    with pytest.raises(
        UserError, match=rf"(?s)not enough free space.*expected: {10**15 * engine.space}"
    ):
        have(engine, huge, "n2", waits=(0,))
    assert proxy.requests == []
    nothing_half(engine, image, node)


@pytest.mark.parametrize("runtime", ["docker", "podman", "apptainer"])
def test_a_disk_that_fills_in_the_middle(
    runtime: str, request: pytest.FixtureRequest, push: Push, short: Path
) -> None:
    """Zeros travel as little and unpack to much: no look at the free space could have known."""
    zeros = layer({"zeros": (bytes(80_000_000), 0o644)})
    image = resolved(push("org/zeros", [zeros]))
    program = request.getfixturevalue("apptainer") if runtime == "apptainer" else Path()
    with small_disk(short / "full", "40m") as disk:
        made = {
            "docker": lambda: docker_node("full", disk / "n"),
            "podman": lambda: podman_node("full", disk / "n"),
            "apptainer": lambda: apptainer_node("full", disk / "n", program),
        }
        with made[runtime]() as node:
            engine = engine_of(site_of(node))
            with pytest.raises(UserError, match="the disk is full"):
                have(engine, image, "full", waits=(0,))
            nothing_half(engine, image, node)
            assert not list(node.images.glob("*")) if node.images.exists() else True


def test_an_engine_that_does_not_answer(image: Resolved, short: Path) -> None:
    nobody = {
        "runtime": "docker",
        "command": ["docker", "-H", f"unix://{short}/no.sock"],
        "images": None,
    }
    with pytest.raises(UserError, match="the container engine does not answer"):
        have(engine_of(nobody), image, "n2", waits=(0,))
