"""The recipe: what is measured. Never a host name, a path or a port."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from serve_repro.recipe.base import EnvName, Name, Strict
from serve_repro.recipe.evaluation import Evaluation

Flag = bool | int | float | str | list[str] | dict[str, object]

DERIVED_FLAGS = {
    "tensor-parallel-size": "topology.tensor_parallel",
    "pipeline-parallel-size": "topology.pipeline_parallel",
    "served-model-name": "model.served_name",
    "max-model-len": "serve.max_model_len",
    "enable-prefix-caching": "serve.prefix_caching",
    "no-enable-prefix-caching": "serve.prefix_caching",
    "async-scheduling": "serve.async_scheduling",
    "no-async-scheduling": "serve.async_scheduling",
    "enforce-eager": "serve.enforce_eager",
    "kv-transfer-config": "kv_offload",
    "speculative-config": "speculation",
    "compilation-config": "compilation",
    "nnodes": "topology and the site",
    "node-rank": "topology and the site",
    "master-addr": "the launcher",
    "master-port": "the launcher",
    "host": "the site",
    "port": "the site",
    "headless": "topology and the site",
}
"""vLLM flags that the plan derives, and from where; a recipe may not set them a second time."""


class MadeModel(Strict):
    """A tiny Llama with random weights, made on the spot: the same bytes from the same numbers."""

    layers: Annotated[int, Field(ge=1)]
    """Transformer layers."""
    hidden_size: Annotated[int, Field(ge=64, multiple_of=64)]
    """Width of the residual stream."""
    vocabulary: Annotated[int, Field(ge=512)]
    """Tokens of the byte-level BPE tokenizer that is trained beside it."""
    max_positions: Annotated[int, Field(ge=1024)]
    """Longest context, in tokens."""
    shards: Annotated[int, Field(ge=1)]
    """How many safetensors files the weights are spread over, at least."""
    seed: int
    """Seed of the weights and of the tokenizer's training text."""


class ModelSource(Strict):
    """A model: where its weights come from, down to the revision."""

    id: Annotated[str, Field(pattern=r"^[\w.-]+/[\w.-]+$")]
    """Hub id, organisation/name."""
    revision: str | None
    """Commit of the hub repository. null: the publication names none; what is found is recorded."""
    made: MadeModel | None = None
    """Make the model instead of looking for published weights (tiny recipes)."""

    @property
    def name(self) -> str:
        """The id's last part, which is also the name of a plain weights directory."""
        return self.id.split("/")[1]


class TargetModel(ModelSource):
    """The model that is served."""

    served_name: str
    """The name under which the API offers it."""
    precision: str
    """Precision of the weights, as the publication names it."""


class Image(Strict):
    """The software that serves: a container image, or a pinned Python environment of envs/."""

    reference: str | None = None
    """Image name and tag, without a digest."""
    digest: Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")] | None = None
    """The digest that the tag must have; null: the tag is resolved and recorded."""
    environment: Name | None = None
    """Name of a pinned environment (folder envs/<name>), for sites without containers."""

    @model_validator(mode="after")
    def _one_at_least(self) -> Image:
        if self.reference is None and self.environment is None:
            raise ValueError("needs a reference (container image) or an environment (envs/)")
        return self


class Topology(Strict):
    """How one server is spread over accelerators."""

    tensor_parallel: Annotated[int, Field(ge=1)]
    """TP: accelerators that share every layer."""
    pipeline_parallel: Annotated[int, Field(ge=1)]
    """PP: stages that the layers are split into."""


class CudaGraphs(Strict):
    """Which batch sizes are captured as graphs: every whole number from the first to the last."""

    mode: str
    """vLLM's cudagraph_mode."""
    capture_min: Annotated[int, Field(ge=1)]
    """Smallest captured batch, in tokens."""
    capture_max: Annotated[int, Field(ge=1)]
    """Largest captured batch, in tokens."""

    @model_validator(mode="after")
    def _ordered(self) -> CudaGraphs:
        if self.capture_min > self.capture_max:
            raise ValueError(f"capture_min {self.capture_min} is above capture_max {self.capture_max}")
        return self


class Compilation(Strict):
    """vLLM's --compilation-config."""

    mode: int
    """Compilation mode (3: vLLM's own compile path)."""
    custom_ops: list[str] = []
    """Custom ops switched on (+) or off (-)."""
    cuda_graphs: CudaGraphs
    """Captured batch sizes."""


class KvLayout(Strict):
    """The model's KV cache as each accelerator holds it: what host block counts follow from."""

    tensor_block_bytes: Annotated[int, Field(ge=1)]
    """Bytes of one block in one KV tensor (or one layer's pair of them)."""
    tensors_by_stage: Annotated[list[Annotated[int, Field(ge=1)]], Field(min_length=1)]
    """KV tensors of each pipeline stage, first stage first."""


class KvOffload(Strict):
    """KV cache offload to host memory. Give a share of DRAM, or bytes a rank, not both."""

    connector: str
    """vLLM's KV connector."""
    backend_name: str
    """The name under which InferenceX's tools know this backend."""
    dram_utilization: Annotated[float, Field(gt=0, le=1)] | None = None
    """Share of a node's usable DRAM that its ranks divide among them."""
    bytes_per_rank: Annotated[int, Field(gt=0)] | None = None
    """Bytes of host memory for each GPU rank."""
    lazy: bool
    """Whether blocks are stored only on eviction."""
    layout: KvLayout | None = None
    """Cache layout, if known: each worker's block count must then be what follows from it."""
    blocks_may_differ: bool = False
    """Replay all the same if the scheduler numbers more blocks than a stage has; never valid then."""

    @model_validator(mode="after")
    def _one_size(self) -> KvOffload:
        if (self.dram_utilization is None) == (self.bytes_per_rank is None):
            raise ValueError("give exactly one of dram_utilization and bytes_per_rank")
        return self


class Speculation(Strict):
    """Speculative decoding, for throughput runs."""

    method: str
    """vLLM's method: dspark, draft_model, ..."""
    draft: ModelSource
    """The draft model."""
    draft_tokens: Annotated[int, Field(ge=1)]
    """Tokens drafted in a step."""
    rejection: Literal["standard", "block", "synthetic"]
    """How drafts are accepted; synthetic: at a set rate, for throughput only, never for accuracy."""
    acceptance_length: Annotated[float, Field(ge=1)] | None = None
    """Mean tokens a step under synthetic rejection (1 + accepted drafts)."""
    label: str
    """InferenceX's word for it (mtp, draft_model)."""
    options: dict[str, Flag] = {}
    """More keys of vLLM's --speculative-config."""

    @model_validator(mode="after")
    def _length_is_for_synthetic(self) -> Speculation:
        if (self.rejection == "synthetic") != (self.acceptance_length is not None):
            raise ValueError("acceptance_length belongs to rejection: synthetic, and only to it")
        if self.acceptance_length is not None and self.acceptance_length > self.draft_tokens + 1:
            raise ValueError(
                f"acceptance_length {self.acceptance_length} is above draft_tokens + 1 "
                f"({self.draft_tokens + 1})"
            )
        return self


class Serve(Strict):
    """How vLLM is started, beyond what topology and the sections above say."""

    max_model_len: Annotated[int, Field(ge=1)]
    """Longest sequence in tokens; the server must report exactly this."""
    prefix_caching: bool
    """Reuse of cached prefixes."""
    async_scheduling: bool | None = None
    """Async scheduling on or off; null: vLLM decides."""
    enforce_eager: bool = False
    """No graphs and no compilation."""
    flags: dict[str, Flag] = {}
    """More flags in vLLM's own spelling, without dashes. true: a bare flag; a mapping: JSON."""
    env: dict[EnvName, str] = {}
    """Environment of every rank."""

    @model_validator(mode="after")
    def _flags_are_not_derived(self) -> Serve:
        for flag in self.flags:
            if flag in DERIVED_FLAGS:
                raise ValueError(f"flags.{flag} is derived from {DERIVED_FLAGS[flag]}; set that instead")
        return self


class TunedGemm(Strict):
    """aiter's tuned GEMM table: the image's own rows, and over them those of the recipe's patches."""

    gfx: str | None = None
    """Keep this architecture's rows only, such as gfx950; null: keep those of every GPU."""
    cu_num: Annotated[int, Field(ge=1)] | None = None
    """And of these only the ones for so many compute units; stands and falls with gfx."""

    @model_validator(mode="after")
    def _one_gpu(self) -> TunedGemm:
        if (self.gfx is None) != (self.cu_num is None):
            raise ValueError("gfx and cu_num name one GPU together")
        return self


class Deadlines(Strict):
    """How long each stage may take, in seconds. Progress extends a stall, never the limit."""

    boot_stall_s: Annotated[float, Field(gt=0)]
    """Longest time without progress while a server boots."""
    boot_limit_s: Annotated[float, Field(gt=0)]
    """Absolute limit from the first process to a server that really answers."""
    first_tokens_s: Annotated[float, Field(gt=0)]
    """Longest wait for the readiness completion, through all stages."""
    client_setup_s: Annotated[float, Field(gt=0)]
    """What the client may need beyond warm-up and window (data set, export)."""
    stop_s: Annotated[float, Field(gt=0)]
    """Grace between TERM and KILL."""


class MadeTraces(Strict):
    """Small synthetic traces in the data set's own record format."""

    sessions: Annotated[int, Field(ge=1)]
    """Traces (session trees)."""
    turns: Annotated[int, Field(ge=2)]
    """Main-agent requests in a session."""
    subagent_every: Annotated[int, Field(ge=1)]
    """Every how many sessions one has a subagent."""
    shared_prefix_blocks: Annotated[int, Field(ge=1)]
    """Blocks of tools and system prompt that each session starts with."""
    output_tokens: Annotated[list[int], Field(min_length=2, max_length=2)]
    """Fewest and most output tokens of a request."""
    think_s: Annotated[list[float], Field(min_length=1)]
    """Think times between turns, drawn from these, in seconds."""
    seed: int
    """Seed of every draw."""


class HubDataset(Strict):
    """A published data set."""

    repository: str
    """Hub data set id."""
    revision: str | None
    """Commit; null: the publication names none; what is fetched is recorded."""
    loader: str
    """The client's name for it (--public-dataset)."""


class Dataset(Strict):
    """The traces that are replayed."""

    name: Name
    """Name of the data set, and of its folder."""
    entries: Annotated[int, Field(ge=1)]
    """Traces in it (--num-dataset-entries)."""
    hub: HubDataset | None = None
    """Published traces."""
    made: MadeTraces | None = None
    """Traces made on the spot."""

    @model_validator(mode="after")
    def _one_source(self) -> Dataset:
        if (self.hub is None) == (self.made is None):
            raise ValueError("give exactly one of hub and made")
        return self


class Replay(Strict):
    """How the client replays the traces; each key is an option of agentx-harness."""

    scenario: str
    """--scenario."""
    dataset: Dataset
    """The traces."""
    duration_s: Annotated[int, Field(ge=1)]
    """--benchmark-duration: the measured window."""
    drain_s: Annotated[int, Field(ge=0)] = 30
    """--benchmark-grace-period: how long requests in flight may still finish."""
    stats_interval_s: Annotated[int, Field(ge=1)]
    """--stats-interval."""
    random_seed: int
    """--random-seed."""
    failed_request_threshold: Annotated[float, Field(ge=0, le=1)]
    """--failed-request-threshold: the live abort, and the gate's limit on errors/completed."""
    trajectory_start_min_ratio: Annotated[float, Field(ge=0, le=1)]
    """--trajectory-start-min-ratio."""
    trajectory_start_max_ratio: Annotated[float, Field(ge=0, le=1)]
    """--trajectory-start-max-ratio."""
    warmup_requests_per_lane: Annotated[int, Field(ge=0)]
    """--warmup-requests-per-lane."""
    warmup_grace_s: Annotated[int, Field(ge=0)]
    """--warmup-grace-period: longest drain of the warm-up."""
    trace_idle_gap_cap_s: Annotated[int, Field(ge=1)]
    """--trace-idle-gap-cap-seconds."""
    slice_s: Annotated[float, Field(gt=0)]
    """--slice-duration of the time series."""
    env: dict[EnvName, str] = {}
    """Environment of the client."""


class Publication(Strict):
    """Where the recipe was published."""

    url: str
    """Address."""
    commit: str | None = None
    """Commit of the source that the recipe was read from."""


class Recipe(Strict):
    """One published recipe. Every key is described; an unknown key is refused."""

    name: Name
    """Name of the recipe: the file's name and the folder of its results."""
    title: str
    """One line for people."""
    publication: Publication | None = None
    """Where it was published; null for recipes of our own."""
    accelerator: Name
    """The accelerator it is for; the site must have it."""
    model: TargetModel
    """What is served."""
    image: Image
    """What serves it."""
    topology: Topology
    """How it is spread."""
    serve: Serve
    """How it is started."""
    compilation: Compilation | None = None
    """Compilation and graphs; null: vLLM's default."""
    kv_offload: KvOffload | None = None
    """KV offload; null: none."""
    speculation: Speculation | None = None
    """Speculative decoding; null: none."""
    patches: list[Name] = []
    """Ids of patches/series.yaml that this recipe needs, in order."""
    tuned_gemm: TunedGemm | None = None
    """aiter's table of tuned GEMMs with rows of the recipe's patches; null: the image's own."""
    deadlines: Deadlines
    """How long each stage may take."""
    replay: Replay
    """How it is loaded."""
    eval: Evaluation | None = None
    """Accuracy, on a server of its own; null: not evaluated."""
    concurrencies: Annotated[list[int], Field(min_length=1)]
    """The points of the sweep: live session trees."""

    @model_validator(mode="after")
    def _layout_has_every_stage(self) -> Recipe:
        layout, stages = self.kv_offload and self.kv_offload.layout, self.topology.pipeline_parallel
        if layout and len(layout.tensors_by_stage) != stages:
            raise ValueError(
                f"kv_offload.layout.tensors_by_stage names {len(layout.tensors_by_stage)} stages, "
                f"topology has {stages}"
            )
        return self

    @model_validator(mode="after")
    def _concurrencies_are_a_set(self) -> Recipe:
        if sorted(set(self.concurrencies)) != self.concurrencies or self.concurrencies[0] < 1:
            raise ValueError("concurrencies must be positive, rising and without repeats")
        return self
