"""A registry with a small image in it, and simulated nodes with engines of their own."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from serve_repro.image.registry import resolve
from serve_repro.image.resolved import Image as Resolved
from serve_repro.image.resolved import read_image
from tests.registry.server import Registry

from . import apptainer_package
from .base_image import base_layer
from .nodes import Node, apptainer_node, docker_node, enroot_node, podman_node
from .oci_layout import Digests, Layer, layer, write_layout
from .required import require

STUB = Path(__file__).parents[1] / "stubs/serve_stub.py"

# Says so if the image's own entrypoint is reached with something else than a serve command.
_VLLM = b"""#!/usr/bin/python3
import runpy, sys
if sys.argv[1:2] != ["serve"]:
    sys.exit(f"the image's entrypoint was not overridden: vllm {sys.argv[1:]}")
runpy.run_path("/usr/local/lib/serve_stub.py", run_name="__main__")
"""
# Debian's Python looks there; a module of "vllm" for the check of patches.
PACKAGES = "usr/local/lib/python3.11/dist-packages"
TARGET = b'"""A module that a patch may be written for."""\n'

FILES = {
    "usr/local/bin/vllm": (_VLLM, 0o755),
    f"{PACKAGES}/vllm/__init__.py": (b"raise RuntimeError('nobody may import me')\n", 0o644),
    f"{PACKAGES}/vllm/v1/target.py": (TARGET, 0o644),
}


class Image(NamedTuple):
    """An image in the registry."""

    name: str
    """Registry and repository, without tag."""
    tag: str
    digest: str
    """The list's digest, which `name@digest` names."""
    config: str
    """The configuration's digest: what Docker calls the image's Id."""

    @property
    def reference(self) -> str:
        return f"{self.name}:{self.tag}"

    @property
    def pinned(self) -> str:
        return f"{self.name}@{self.digest}"


@pytest.fixture(scope="session")
def short() -> Iterator[Path]:
    """A folder with a short name (sockets need that), gone at the end."""
    folder = Path(tempfile.mkdtemp(prefix="sr-"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def registry(short: Path) -> Iterator[Registry]:
    """A registry for all tests; one that is to be stopped or broken is a test's own."""
    require("registry")
    folder = short / "registry"
    folder.mkdir()
    started = Registry(folder)
    try:
        started.wait()
        yield started
    finally:
        started.stop()


@pytest.fixture(scope="session")
def base() -> Layer:
    """bash, busybox and Python."""
    require("registry")
    return base_layer()


Push = Callable[..., Image]


@pytest.fixture(scope="session")
def push(registry: Registry, short: Path) -> Push:
    """push(name, layers, tag="v1", entrypoint=["vllm"]) puts an image into the registry."""
    count = iter(range(10**6))

    def pushed(name: str, layers: list[Layer], tag: str = "v1") -> Image:
        layout = short / f"layout{next(count)}"
        digests: Digests = write_layout(layout, layers, ["vllm"])
        digest = registry.push_layout(layout, name, tag)
        shutil.rmtree(layout)
        return Image(f"{registry.address}/{name}", tag, digest, digests.config)

    return pushed


@pytest.fixture(scope="session")
def image(push: Push, base: Layer) -> Image:
    """bash, busybox, Python and a stand-in for vllm, behind ENTRYPOINT ["vllm"]."""
    stub = {"usr/local/lib/serve_stub.py": (STUB.read_bytes(), 0o644)}
    return push("org/vllm", [base, layer(FILES | stub)])


@pytest.fixture(scope="session")
def docker_nodes(short: Path) -> Iterator[list[Node]]:
    """Two nodes with a Docker daemon each."""
    require("docker")
    with ExitStack() as stack:
        yield [stack.enter_context(docker_node(f"node{i}", short / f"d{i}")) for i in (1, 2)]


@pytest.fixture(scope="session")
def podman_nodes(short: Path) -> Iterator[list[Node]]:
    """Two nodes with a podman store each."""
    require("podman")
    with ExitStack() as stack:
        yield [stack.enter_context(podman_node(f"node{i}", short / f"p{i}")) for i in (1, 2)]


@pytest.fixture(scope="session")
def apptainer(pytestconfig: pytest.Config) -> Path:
    """apptainer's program: this machine's, or Debian's package unpacked into pytest's cache."""
    try:
        return apptainer_package.program(pytestconfig.cache.mkdir("apptainer"))
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"no apptainer: Debian's package cannot be unpacked here: {error}")


@pytest.fixture(scope="session")
def apptainer_nodes(short: Path, apptainer: Path) -> Iterator[list[Node]]:
    """Two nodes with apptainer's cache and image files each."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(apptainer_node(f"node{i}", short / f"a{i}", apptainer)) for i in (1, 2)
        ]


@pytest.fixture(scope="session")
def enroot() -> Path:
    """enroot's program: this machine's."""
    found = shutil.which("enroot")
    if found is None:
        pytest.skip("no enroot: not installed, and Debian has no package of it")
    return Path(found)


@pytest.fixture(scope="session")
def enroot_nodes(short: Path, enroot: Path) -> Iterator[list[Node]]:
    """Two nodes with enroot's image files each."""
    with ExitStack() as stack:
        yield [stack.enter_context(enroot_node(f"node{i}", short / f"e{i}", enroot)) for i in (1, 2)]


@pytest.fixture(params=["docker", "podman", "apptainer", "enroot"])
def nodes(request: pytest.FixtureRequest) -> list[Node]:
    """Two nodes of each kind, one kind after the other."""
    found: list[Node] = request.getfixturevalue(f"{request.param}_nodes")
    return found


def site_of(node: Node) -> dict[str, Any]:
    """What a site file would say of a node's engine."""
    return {"runtime": node.runtime, "command": node.command, "images": str(node.images)}


def resolved(image: Image) -> Resolved:
    """What resolve_image finds for an image's tag."""
    return read_image({"image": image.name, **resolve(image.reference, image.name, None, waits=())})
