"""The site: where a recipe runs. Never a model's name or a flag of a recipe."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Literal

from pydantic import Field, model_validator

from serve_repro.recipe.base import EnvName, Name, Strict


class Accelerators(Strict):
    """What each node has."""

    kind: Name
    """Accelerator, as recipes name it (mi355x, cpu)."""
    per_node: Annotated[int, Field(ge=1)]
    """Accelerators of a node; for cpu: server workers a node runs."""


class Exclusion(Strict):
    """A node that must not be used, why, and until when."""

    node: str
    """Host name; where nodes are chosen, also many, as Slurm writes them (n[01-04,7])."""
    reason: str
    """Why."""
    until: date
    """The day on which it should be looked at again."""


class Ports(Strict):
    """Where servers may listen."""

    first: Annotated[int, Field(ge=1024, le=65535)]
    """First port of the range that free ports are taken from."""
    last: Annotated[int, Field(ge=1024, le=65535)]
    """Last port of the range."""
    api: Annotated[int, Field(ge=1024, le=65535)] | None = None
    """Insist on this port for the API; null: any free one of the range."""

    @model_validator(mode="after")
    def _wide_enough(self) -> Ports:
        if self.last - self.first < 1:
            raise ValueError("the range must hold at least two ports (API and rendezvous)")
        return self


class Mount(Strict):
    """A folder of the host that containers see."""

    source: str
    """Path on the host."""
    target: str
    """Path in the container."""
    read_only: bool = True
    """Whether the container may not write it."""


class Container(Strict):
    """How containers are started here."""

    command: Annotated[list[str], Field(min_length=1)]
    """The runtime's command: [docker], [sudo, docker], [env, KEY=value, podman]."""
    user: Literal["caller", "image"] = "caller"
    """As whom a rank runs: who started the workflow, or whom the image says (docker, podman)."""
    images: str | None = None
    """Folder for image files on each node's own disk; apptainer and enroot need it."""
    devices: list[str] = []
    """Devices passed in."""
    groups: list[str] = []
    """Supplementary groups."""
    ulimits: dict[str, str] = {}
    """Resource limits."""
    shm_size: str | None = None
    """Size of /dev/shm, for docker alone; null: the host's own /dev/shm is what counts."""
    capabilities: list[str] = []
    """Added capabilities."""
    security_options: list[str] = []
    """Security options."""
    privileged: bool = False
    """All privileges; shown aloud in the plan."""
    options: list[str] = []
    """More words for the runtime's run, exec or start."""
    mounts: list[Mount] = []
    """More folders of the host."""


_WITHOUT = {
    "podman": {"shm_size"},
    "apptainer": {"shm_size", "groups", "security_options", "privileged", "user"},
    "enroot": {
        "shm_size",
        "groups",
        "security_options",
        "privileged",
        "user",
        "devices",
        "capabilities",
    },
}
"""Keys that a runtime has no words for: it gives what the host has, and a rank's user has, anyway."""


class Mirror(Strict):
    """Another address for others' files; their hashes stay what vouches for them."""

    prefix: str
    """How the addresses begin that it stands for."""
    instead: str
    """What stands in place of that beginning (https)."""


class PatchFiles(Strict):
    """Where others' patches come from, if not from their own addresses."""

    mirror: Mirror | None = None
    """A mirror of some addresses."""
    offline: str | None = None
    """A folder with the files, by sha256 or by name: the network is not asked then."""


class Slurm(Strict):
    """What this site's Slurm wants to be asked for. A point gets whole nodes (--exclusive)."""

    partition: str | None = None
    """Partition; null: Slurm's default."""
    account: str | None = None
    """Account; null: Slurm's default."""
    gres: Annotated[str, Field(pattern=r"^[\w:.]+$")] | None = None
    """Generic resources of each serving node, such as gpu:8; null: none."""
    cpus_per_node: Annotated[int, Field(ge=1)]
    """Processors of each serving node."""
    memory_mb_per_node: Annotated[int, Field(ge=1)]
    """Host memory of each serving node, in MB, KV offload included."""


class Site(Strict):
    """One place to run: a laptop or a cluster. Every key is described; an unknown key is refused."""

    name: Name
    """Name of the site: the file's name."""
    title: str
    """One line for people."""
    accelerators: Accelerators
    """What each node has."""
    runner: Literal["local", "srun"]
    """How a rank is started on its node: a child process here, or a Slurm step."""
    runtime: Literal["process", "docker", "podman", "apptainer", "enroot"]
    """What a rank runs in: a pinned Python environment, or a container."""
    container: Container | None = None
    """How containers are started; needed unless runtime is process."""
    nodes: Annotated[list[str], Field(min_length=1)] | None = None
    """The nodes that serve, in rank order; local: [localhost]; null: chosen from slurm.partition."""
    excludes: list[Exclusion] = []
    """Nodes that must not be used."""
    dram_mib_per_node: Annotated[int, Field(ge=1)] | None = None
    """Usable host memory of a node in MiB; needed by recipes that take a share of it."""
    weight_roots: Annotated[list[str], Field(min_length=1)]
    """Folders that are searched for weights, in order. Environment variables are expanded."""
    cache_root: str | None = None
    """Folder on each node for compiled code, by image and patch set; relative: below the checkout."""
    shared_weight_roots: list[str] = []
    """Those of weight_roots that all nodes see as one file system: one node hashes for all of them."""
    download_weights_to: str | None = None
    """The one of weight_roots that missing weights may be downloaded into; null: never download."""
    api_host: str
    """Address that the API listens on."""
    ports: Ports
    """Where servers may listen."""
    env: dict[EnvName, str] = {}
    """Environment of every rank at this site (network, firmware, threads)."""
    patch_files: PatchFiles | None = None
    """Where others' patches come from; null: from their own addresses."""
    slurm: Slurm | None = None
    """What Slurm is asked for; needed by runner srun."""

    @model_validator(mode="after")
    def _consistent(self) -> Site:
        if self.runtime != "process" and self.container is None:
            raise ValueError(f"runtime {self.runtime} needs the section 'container'")
        if self.container is not None:
            without = _WITHOUT.get(self.runtime, set()) & self.container.model_fields_set
            if without:
                raise ValueError(f"runtime {self.runtime} has no container.{', '.join(sorted(without))}")
        if self.runner == "srun" and self.slurm is None:
            raise ValueError("runner srun needs the section 'slurm'")
        if self.runner == "local" and self.nodes != ["localhost"]:
            raise ValueError("runner local starts every rank here: nodes must be [localhost]")
        for root in [*self.shared_weight_roots, *filter(None, [self.download_weights_to])]:
            if root not in self.weight_roots:
                raise ValueError(f"root {root} is not one of weight_roots {self.weight_roots}")
        if self.nodes is None:
            if self.slurm is None or self.slurm.partition is None:
                raise ValueError("without 'nodes', they are chosen from slurm.partition: name it")
            return self
        for entry in self.excludes:
            if "[" in entry.node or "," in entry.node:
                raise ValueError(f"excludes: {entry.node} is many: where nodes are named, one by one")
            if entry.node in self.nodes:
                raise ValueError(f"node {entry.node} stands in nodes and in excludes")
        return self
