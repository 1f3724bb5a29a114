"""What a cluster is: the size a caller asks for, the ports it got, and where its files lie."""

from __future__ import annotations

import dataclasses
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from devslurm.errors import ClusterError

# sockaddr_un holds 107 bytes and a null. slurmstepd makes the longest socket of a cluster, named
# node, job id and step id; a longer path fails there with an error that does not name the cause.
_LONGEST_SOCKET = "spool/node99/node99_4294967295.4294967295"
_SOCKET_PATH_BYTES = 107


@dataclass(frozen=True)
class ClusterSpec:
    """The size and manners of a cluster. CPUs, memory and GPUs are counted, never really there."""

    nodes: int = 2
    gpus: int = 8
    """GPUs of each node; 0 leaves GPUs out."""
    cpus: int = 16
    """CPUs of each node."""
    memory_mb: int = 16000
    """Memory of each node, MiB."""
    gpu_type: str = "mi355x"
    accounting: bool = False
    """Run slurmdbd with a MariaDB of its own, so that sacct works."""
    cgroup: bool = False
    """Steps in cgroup v1: real out-of-memory kills, and no process outlives its step."""
    node_timeout_s: int = 10
    """SlurmdTimeout: a node that is silent for this long is DOWN; see kill_node."""
    message_timeout_s: int = 10
    """MessageTimeout: how long daemons and clients wait for an answer from each other."""
    kill_wait_s: int = 5
    """KillWait: from TERM to KILL when a job is cancelled or runs out of time."""

    def __post_init__(self) -> None:
        """Raise ClusterError if a number is out of range."""
        limits = {
            "nodes": (1, 99),
            "gpus": (0, 64),
            "cpus": (1, 1024),
            "memory_mb": (100, 1 << 24),
            "node_timeout_s": (3, 3600),
            "message_timeout_s": (1, 100),
            "kill_wait_s": (1, 3600),
        }
        for name, (low, high) in limits.items():
            value = getattr(self, name)
            if not low <= value <= high:
                raise ClusterError(f"{name}: expected {low} to {high}, found {value}")
        if not re.fullmatch(r"[a-z0-9_]+", self.gpu_type):
            raise ClusterError(f"gpu_type: expected lower case letters, found {self.gpu_type!r}")


@dataclass(frozen=True)
class Ports:
    """TCP ports on loopback addresses, chosen free when the cluster starts."""

    controller: int
    database: int
    nodes: tuple[int, ...]

    def address(self, number: int) -> str:
        """Return the IPv4 address of node `number` (from 1), or of the controller for 0.

        The controller's port is in the middle bytes: a port has one owner, so two clusters that
        live at once never share an address, and their servers may use the same port numbers.
        """
        return f"127.{self.controller >> 8}.{self.controller & 255}.{10 + number}"


@dataclass(frozen=True)
class Layout:
    """The files of a cluster below its state directory."""

    state: Path

    @classmethod
    def at(cls, state: Path | str) -> Layout:
        """Return the layout below `state`; raise ClusterError if Slurm cannot live there."""
        path = Path(state).resolve()
        if not re.fullmatch(r"[A-Za-z0-9._/-]+", str(path)):
            raise ClusterError(
                f"state directory {str(path)!r}: slurm.conf takes letters, digits and ._/- only"
            )
        room = _SOCKET_PATH_BYTES - len(_LONGEST_SOCKET) - 1
        if len(str(path)) > room:
            raise ClusterError(
                f"state directory {path}: {len(str(path))} characters, at most {room} leave room "
                "for the names of Unix sockets; choose a shorter path"
            )
        return cls(path)

    @property
    def description(self) -> Path:
        """The cluster's spec and ports; it exists exactly while something may be running."""
        return self.state / "cluster.json"

    @property
    def draft(self) -> Path:
        """The description while it is being written."""
        return self.state / "cluster.json.new"

    @property
    def etc(self) -> Path:
        """Slurm's configuration, which nodes see as /etc/slurm."""
        return self.state / "etc"

    @property
    def slurm_conf(self) -> Path:
        """The path for SLURM_CONF."""
        return self.etc / "slurm.conf"

    @property
    def hosts(self) -> Path:
        """The /etc/hosts of the nodes and of the controller."""
        return self.state / "hosts"

    @property
    def munge(self) -> Path:
        """Munged's key, seed and socket."""
        return self.state / "munge"

    @property
    def munge_socket(self) -> Path:
        """Where munged listens."""
        return self.munge / "socket"

    @property
    def controller(self) -> Path:
        """Slurmctld's saved state; it outlives a restart of the controller."""
        return self.state / "controller"

    @property
    def spool(self) -> Path:
        """A folder a node for slurmd."""
        return self.state / "spool"

    @property
    def devices(self) -> Path:
        """Where a node mounts its GPU device nodes; always empty outside of the nodes."""
        return self.state / "dev"

    @property
    def database(self) -> Path:
        """MariaDB's data and socket."""
        return self.state / "db"

    @property
    def pids(self) -> Path:
        """A record of each process that was started."""
        return self.state / "pids"

    @property
    def logs(self) -> Path:
        """The daemons' logs, all that is left after `down`."""
        return self.state / "log"

    def pid(self, name: str) -> Path:
        """Return the process record of daemon `name`."""
        return self.pids / name

    def folders(self) -> tuple[Path, ...]:
        """Return the folders to create."""
        return (
            self.etc,
            self.munge,
            self.controller,
            self.spool,
            self.devices,
            self.database,
            self.pids,
            self.logs,
        )


def save(layout: Layout, spec: ClusterSpec, ports: Ports) -> None:
    """Write the cluster's description, whole or not at all."""
    document = {"spec": dataclasses.asdict(spec), "ports": dataclasses.asdict(ports)}
    layout.draft.write_text(json.dumps(document, indent=1) + "\n")
    layout.draft.replace(layout.description)


def load(layout: Layout) -> tuple[ClusterSpec, Ports]:
    """Read the description of a cluster that is up; raise ClusterError if there is none."""
    try:
        document: dict[str, Any] = json.loads(layout.description.read_text())
    except FileNotFoundError:
        raise ClusterError(f"no cluster in {layout.state}: start one with `up`") from None
    ports = document["ports"]
    return (
        ClusterSpec(**document["spec"]),
        Ports(ports["controller"], ports["database"], tuple(ports["nodes"])),
    )
