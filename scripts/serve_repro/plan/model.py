"""The plan: two exact command lines, environments, mounts, byte counts and deadlines, as data."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, TypeVar

from pydantic import ValidationError

from serve_repro.command import Command
from serve_repro.documents import digest, read_json
from serve_repro.errors import UserError
from serve_repro.recipe.base import Strict


class RankPlan(Strict):
    """One server rank: node `rank` of the server."""

    rank: int
    role: Literal["api", "headless"]
    prefix: list[str]
    """What brings a command to the rank's node: a Slurm step; empty on the launcher's own machine."""
    start: Command
    """What is started there: the runtime (container) around `vllm serve`."""
    cleanup: list[Command]
    """What removes the rank's container, should it outlive its start command."""
    left: Command | None = None
    """Prints the container's name while it is there."""
    first_process: Command | None = None
    """Prints the id of the container's first process; null: the rank is started as our own child."""


class Topology(Strict):
    """Where the server's accelerators are."""

    tensor_parallel: int
    pipeline_parallel: int
    world_size: int
    """Accelerators of the server: the denominator of every per-GPU figure."""
    accelerator: str
    accelerators_per_node: int


class Memory(Strict):
    """KV offload memory."""

    dram_gb_per_node: int
    """GB of host memory on each node (as InferenceX counts it)."""
    kv_offload_bytes_per_rank: int
    """Bytes of host memory for each GPU rank."""


class Ports(Strict):
    """Which ports a launch may take."""

    first: int
    last: int
    api: int | None


class NodeNeeds(Strict):
    """What each node must show before anything is started on it."""

    accelerator: str
    gpus: int
    """GPUs of the node; 0: it needs none."""
    rdma: str | None
    """Its RDMA devices, as NCCL_IB_HCA of the site names them; null: none are named."""
    memlock: bool
    """Whether a rank must be able to lock any amount of memory, and has its limit from its caller."""
    containers: Command | None
    """Prints the names of this project's containers; null: the runtime leaves none."""


class Readiness(Strict):
    """When a server counts as serving, and how long that may take (seconds)."""

    boot_stall_s: float
    boot_limit_s: float
    first_tokens_s: float
    stop_s: float


class ClientPlan(Strict):
    """The replay client."""

    command: Command
    tokenizer: str
    """Hub id under which the client asks for the model's tokenizer."""
    hub_traces: bool
    """Whether the traces come from a hub cache (otherwise from a plain folder)."""
    duration_s: int
    """Measured window."""
    idle_gap_s: float
    """Longest time in which no request need be under way: the last one may end this early."""
    lane_gap_s: float
    """Longest silence of one lane that still counts as alive."""
    limit_s: float
    """Longest the client may run in all: set-up, warm-up, window, drain, export."""


class AccuracyPlan(Strict):
    """What an accuracy evaluation asks, and what it must reach."""

    task: str
    items: int
    few_shot: int
    max_tokens: int
    threshold: float
    rejection: str | None
    """How drafts are accepted; null: no speculation."""


class Expectations(Strict):
    """What the gates hold the point against."""

    served_name: str
    max_model_len: int
    prefix_caching: bool
    async_scheduling: bool | None
    """None: the recipe leaves it to vLLM."""
    kv_offload_connector: str | None
    kv_offload_bytes_per_rank: int | None
    kv_offload_blocks: list[int] | None
    """Host blocks that each pipeline stage's workers will have; null: the recipe has no layout."""
    kv_blocks_may_differ: bool
    """Replay all the same if the scheduler numbers more host blocks than a stage has."""
    speculation: str | None
    acceptance_length: float | None
    max_error_ratio: float
    validity: Literal["submission", "smoke"]
    """submission: the benchmark's own rules hold; smoke: short or made, never compared."""
    validity_reasons: list[str]
    """Why it is only a smoke run."""


class Request(Strict):
    """What a scheduler is asked for, one job a point."""

    nodes: int
    runtime_min: int


class Plan(Strict):
    """One point: recipe x site x concurrency."""

    recipe: str
    site: str
    concurrency: int
    image: str
    """Image reference without tag where a container is used, else envs/<name>."""
    runtime: str
    runner: str
    cache_root: str | None
    """Folder on each node that keeps compiled code between attempts; null: none is kept."""
    nodes: list[str]
    """Nodes that may serve: as many as there are ranks, or more; empty: select_nodes chooses them."""
    patches: list[str]
    topology: Topology
    memory: Memory | None
    ports: Ports
    needs: NodeNeeds
    bindings: dict[str, str]
    """Names that a launch fills in, with their meaning."""
    ranks: list[RankPlan]
    readiness: Readiness
    client: ClientPlan
    expect: Expectations
    request: Request
    warnings: list[str]
    """What a reader should know before starting it."""

    def digest(self) -> str:
        """Sha256 of the plan: its identity, and what decides whether a point is stale.

        Words for people are left out: a better sentence must not cost a measurement.
        """
        return digest(self.model_dump(mode="json", exclude={"bindings", "warnings"}))


class EvaluationPlan(Plan):
    """An accuracy evaluation: a server as a point has it, with another client. Nothing is timed."""

    accuracy: AccuracyPlan


_P = TypeVar("_P", bound=Plan)


def read_plan(path: Path) -> Plan:
    """Read a point's plan.json.

    Raises:
        UserError: as `read_evaluation`.
    """
    return _read(path, Plan)


def read_evaluation(path: Path) -> EvaluationPlan:
    """Read an evaluation's plan.json.

    Raises:
        UserError: the file is damaged or of another version.
    """
    return _read(path, EvaluationPlan)


def _read(path: Path, kind: type[_P]) -> _P:
    try:
        return kind.model_validate(read_json(path))
    except ValidationError as error:
        raise UserError(
            f"is not a plan of this version: {error.error_count()} differences",
            where=str(path),
            remedy=f"make it again: snakemake {path} --force",
        ) from error
