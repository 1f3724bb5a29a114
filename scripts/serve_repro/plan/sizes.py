"""The formulas behind every number that a plan derives. Each is stated once, here."""

from __future__ import annotations

from decimal import Decimal

from serve_repro.errors import UserError
from serve_repro.recipe.recipe import CudaGraphs, KvLayout, KvOffload, Topology
from serve_repro.recipe.site import Site

DRAM_CAP_MIB = 2_861_022
"""Most host memory per node, in MiB, that InferenceX's rule counts (3,000 GB)."""

MIB = 1_048_576
GB = 1_000_000_000


def world_size(topology: Topology) -> int:
    """Accelerators of one server: TP x PP."""
    return topology.tensor_parallel * topology.pipeline_parallel


def accelerators_on_node(topology: Topology, per_node: int) -> int:
    """Accelerators that one server uses on each of its nodes.

    Raises:
        UserError: the server would fill a node only partly, or a TP group would leave its node.
    """
    total = world_size(topology)
    if total <= per_node:
        return total
    if total % per_node or per_node % topology.tensor_parallel:
        raise UserError(
            "this topology does not fill the site's nodes",
            where="topology",
            expected=f"TP x PP a multiple of {per_node} accelerators a node, TP a divisor of it",
            found=f"TP{topology.tensor_parallel} x PP{topology.pipeline_parallel} = {total}",
        )
    return per_node


def server_ranks(topology: Topology, per_node: int) -> int:
    """Nodes (server processes) of one server: TP x PP / accelerators on a node."""
    return world_size(topology) // accelerators_on_node(topology, per_node)


def dram_gb_per_node(dram_mib: int, utilization: float, used: int, per_node: int) -> int:
    """Host memory for KV offload on one node, in GB (1e9 bytes), rounded down.

    floor(min(DRAM, cap) x 2^20 x utilization x used / per_node / 1e9), in decimal arithmetic,
    as InferenceX's sweep generator does it.
    """
    usable = Decimal(min(dram_mib, DRAM_CAP_MIB)) * MIB
    share = usable * Decimal(str(utilization)) * used / per_node
    return int(share / GB)


def offload_bytes_per_rank(offload: KvOffload, topology: Topology, site: Site) -> tuple[int, int]:
    """(GB a node, bytes a GPU rank) of KV offload memory: bytes = GB x 1e9 / ranks on the node.

    Raises:
        UserError: the recipe takes a share of DRAM and the site does not say how much it has.
    """
    used = accelerators_on_node(topology, site.accelerators.per_node)
    if offload.bytes_per_rank is not None:
        return offload.bytes_per_rank * used // GB, offload.bytes_per_rank
    if site.dram_mib_per_node is None or offload.dram_utilization is None:
        raise UserError(
            "the recipe offloads KV blocks to a share of DRAM",
            where=f"config/sites/{site.name}.yaml: dram_mib_per_node",
            expected="usable host memory of a node, in MiB",
            found="nothing",
        )
    per_node = site.accelerators.per_node
    gigabytes = dram_gb_per_node(site.dram_mib_per_node, offload.dram_utilization, used, per_node)
    return gigabytes, gigabytes * GB // used


def offload_blocks(layout: KvLayout, bytes_per_rank: int) -> list[int]:
    """Host blocks of each pipeline stage's workers, first stage first; the smallest is the cap.

    floor(bytes a rank / (bytes of a block in one tensor x the stage's tensors)), one at least: how
    vLLM's SimpleCPUOffloadWorker sizes its own pool.
    """
    return [
        max(1, bytes_per_rank // (layout.tensor_block_bytes * tensors))
        for tensors in layout.tensors_by_stage
    ]


def capture_sizes(graphs: CudaGraphs) -> list[int]:
    """Batch sizes captured as graphs: every whole number from the first to the last."""
    return list(range(graphs.capture_min, graphs.capture_max + 1))
