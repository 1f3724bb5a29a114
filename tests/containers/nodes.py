"""Simulated nodes: each has engines and stores of its own, all on this machine.

What such an engine needs here, and why, is said beside each option. None of them touches the
machine's own stores, network or services.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

DOCKERD = (
    # No bridge, no rules, no sysctl: containers use the host's network.
    *("--iptables=false", "--ip6tables=false", "--bridge=none"),
    *("--ip-forward=false", "--ip-masq=false"),
)

_CONTAINERS_CONF = """
[containers]
netns = "host"
utsns = "host"
log_driver = "k8s-file"
default_ulimits = ["nofile={files}:{files}", "nproc=32768:32768"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "runc"
"""

_STORAGE_CONF = """
[storage]
driver = "overlay"
graphroot = "{folder}/storage"
runroot = "{folder}/run"
"""

_REGISTRIES_CONF = """
unqualified-search-registries = []
[[registry]]
location = "127.0.0.1"
insecure = true
"""


@dataclass
class Node:
    """One simulated node with one engine."""

    name: str
    runtime: str
    command: list[str]
    """What stands in a site's container.command: all that a call needs, its environment included."""
    folder: Path
    """Short, for sockets; images, stores and caches of this node lie below it."""
    environment: dict[str, str] = field(default_factory=dict)
    """The same settings as variables, for calls of the engine by its own name."""

    @property
    def images(self) -> Path:
        """Where image files go (apptainer, enroot): a site's container.images."""
        return self.folder / "images"

    def run(self, *words: str, check: bool = True, timeout: float = 60) -> str:
        """Call the engine; returns its standard output."""
        run = subprocess.run(
            [*self.command, *words], capture_output=True, text=True, check=False, timeout=timeout
        )
        assert not check or run.returncode == 0, f"{words}: {run.stdout}{run.stderr}"
        return run.stdout


@contextmanager
def docker_node(name: str, folder: Path, driver: str = "overlay2") -> Iterator[Node]:
    """A node with a Docker daemon of its own, gone at the end."""
    folder.mkdir(parents=True)
    settings = folder / "config"
    settings.mkdir()
    # It tries five times by itself, longer and longer apart: too long for a test.
    told = {"insecure-registries": ["127.0.0.0/8"], "max-download-attempts": 1}
    (settings / "daemon.json").write_text(json.dumps(told), encoding="utf-8")
    socket = f"unix://{folder}/d.sock"
    words = ["dockerd", "--config-file", str(settings / "daemon.json"), "-H", socket, *DOCKERD]
    words += ["--data-root", str(folder / "data"), "--exec-root", str(folder / "exec")]
    words += ["--pidfile", str(folder / "pid"), "--storage-driver", driver]
    with (folder / "dockerd.log").open("wb") as log:
        daemon = subprocess.Popen(words, stdout=log, stderr=log, start_new_session=True)
    environment = {"DOCKER_HOST": socket, "DOCKER_CONFIG": str(settings)}
    node = Node(name, "docker", _with(environment, "docker"), folder, environment)
    try:
        _wait_for(daemon, node)
        yield node
    finally:
        if daemon.poll() is None:
            for container in node.run("ps", "--all", "--quiet", check=False).split():
                node.run("rm", "--force", container, check=False)
            daemon.terminate()
        daemon.wait(timeout=30)
        unmount_below(folder)


def _wait_for(daemon: subprocess.Popen[bytes], node: Node) -> None:
    for _ in range(300):
        said = subprocess.run([*node.command, "version"], capture_output=True, check=False)
        if said.returncode == 0:
            return
        assert daemon.poll() is None, (node.folder / "dockerd.log").read_text()[-3000:]
        time.sleep(0.1)
    raise AssertionError("dockerd does not answer")


@contextmanager
def podman_node(name: str, folder: Path) -> Iterator[Node]:
    """A node with a podman store of its own."""
    settings = folder / "config"
    settings.mkdir(parents=True)
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    texts = {
        # podman asks for more files than a machine without CAP_SYS_RESOURCE may give.
        "containers.conf": _CONTAINERS_CONF.format(files=files),
        "storage.conf": _STORAGE_CONF.format(folder=folder),
        "registries.conf": _REGISTRIES_CONF,
    }
    for file, text in texts.items():
        (settings / file).write_text(text, encoding="utf-8")
    (folder / "tmp").mkdir()
    environment = {
        "CONTAINERS_CONF": str(settings / "containers.conf"),
        "CONTAINERS_STORAGE_CONF": str(settings / "storage.conf"),
        "CONTAINERS_REGISTRIES_CONF": str(settings / "registries.conf"),
        "REGISTRY_AUTH_FILE": str(settings / "auth.json"),
        "TMPDIR": str(folder / "tmp"),  # layers are buffered there
    }
    (settings / "auth.json").write_text("{}", encoding="utf-8")
    node = Node(name, "podman", _with(environment, "podman"), folder, environment)
    try:
        yield node
    finally:
        node.run("rm", "--all", "--force", "--time", "1", check=False)
        unmount_below(folder)


@contextmanager
def apptainer_node(name: str, folder: Path, program: Path) -> Iterator[Node]:
    """A node with apptainer's settings and image files of its own; a pull names its own cache."""
    environment = {
        "APPTAINER_CONFIGDIR": str(folder / "config"),
        "APPTAINER_NOHTTPS": "1",
        # A machine without this capability cannot hand it on, and apptainer's root exec tries to.
        "APPTAINER_DROP_CAPS": "CAP_SYS_RESOURCE",
    }
    for part in ("config", "images"):
        (folder / part).mkdir(parents=True)
    yield Node(name, "apptainer", _with(environment, str(program)), folder, environment)
    unmount_below(folder)


@contextmanager
def enroot_node(name: str, folder: Path, program: Path) -> Iterator[Node]:
    """A node with enroot's settings, data and image files of its own; an import names its own cache."""
    environment = {
        f"ENROOT_{part.upper()}_PATH": str(folder / part) for part in ("config", "data", "runtime")
    }
    for part in ("config", "data", "runtime", "images"):
        (folder / part).mkdir(parents=True)
    yield Node(name, "enroot", _with(environment, str(program)), folder, environment)
    unmount_below(folder)


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """A file system of a few bytes, as `mount` writes them (30m)."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)
        folder.rmdir()


def _with(environment: dict[str, str], program: str) -> list[str]:
    return ["env", *(f"{key}={value}" for key, value in environment.items()), program]


def unmount_below(folder: Path) -> None:
    """Take away what an engine has left mounted below a folder, deepest first."""
    lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    points = [line.split()[4] for line in lines]
    inside = [point for point in points if point.startswith(f"{folder}{os.sep}")]
    for point in sorted(inside, key=len, reverse=True):
        subprocess.run(["umount", point], check=True)
