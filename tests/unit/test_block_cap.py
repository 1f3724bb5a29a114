"""The KV offload block cap: the scheduler's count is the smallest stage's, by vLLM's own formulas."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from serve_repro_hooks.kv_offload_block_cap import capped_capacity, widest_block_bytes

from serve_repro.plan.sizes import GB, MIB, offload_blocks
from serve_repro.recipe.load import load
from serve_repro.recipe.recipe import KvLayout, Recipe

BASE = Path(__file__).parents[2]
Layout = Callable[[int, int], SimpleNamespace]
LAYER = 32_768
"""Bytes of one layer's part of a block."""


def places(layers: int, blocks: int) -> SimpleNamespace:
    """A worker's cache in vLLM 0.32.0: places in one allocation, each states the whole size."""
    tensor = SimpleNamespace(size=layers * LAYER * blocks, block_stride=LAYER)
    return SimpleNamespace(num_blocks=blocks, kv_cache_tensors=[tensor, tensor])


def tensors(layers: int, blocks: int) -> SimpleNamespace:
    """A worker's cache in vLLM 0.27.1: a tensor a layer, each states its own size."""
    tensor = SimpleNamespace(size=LAYER * blocks, block_stride=0)
    return SimpleNamespace(num_blocks=blocks, kv_cache_tensors=[tensor] * layers)


def packed(layers: int, blocks: int) -> SimpleNamespace:
    """The other layout of vLLM 0.27.1: one allocation, all layers of a block side by side."""
    tensor = SimpleNamespace(size=layers * LAYER * blocks, block_stride=layers * LAYER)
    return SimpleNamespace(num_blocks=blocks, kv_cache_tensors=[tensor] * layers)


def gpu_bytes(config: SimpleNamespace) -> int:
    """As vLLM 0.27.1 counts; 0.32.0 knows only the first case."""
    if all(tensor.block_stride for tensor in config.kv_cache_tensors):
        return int(config.kv_cache_tensors[0].size)
    return sum(int(tensor.size) for tensor in config.kv_cache_tensors)


def scheduler_blocks(config: SimpleNamespace, capacity_bytes: int) -> int:
    """GPU blocks x capacity / GPU bytes, at least one."""
    return int(max(1, config.num_blocks * capacity_bytes // gpu_bytes(config)))


def worker_blocks(config: SimpleNamespace, capacity_bytes: int) -> int:
    """Capacity / the worker's own bytes a block, at least one."""
    return int(max(1, capacity_bytes // (gpu_bytes(config) // config.num_blocks)))


LAYOUTS = [places, tensors, packed]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("split", [(1, 3), (3, 1), (2, 2), (47, 46), (1, 92), (3, 5)])
@pytest.mark.parametrize("capacity", [16 * MIB, 16 * MIB - 1, 187_375_000_000, 1000])
@pytest.mark.parametrize("blocks", [1, 7, 2048])
def test_the_scheduler_counts_what_the_smallest_stage_has(
    layout: Layout, split: tuple[int, int], capacity: int, blocks: int
) -> None:
    stages = [layout(layers, blocks) for layers in split]
    capped = capped_capacity(stages[0], capacity, widest_block_bytes(stages))
    smallest = min(worker_blocks(stage, capacity) for stage in stages)
    assert scheduler_blocks(stages[0], capped) == smallest


@pytest.mark.parametrize("layout", LAYOUTS)
def test_without_the_cap_the_counts_of_uneven_stages_differ(layout: Layout) -> None:
    """The plan derives the same from the recipe's layout."""
    stages = [layout(1, 2048), layout(3, 2048)]
    assert scheduler_blocks(stages[0], 16 * MIB) == 512
    assert [worker_blocks(stage, 16 * MIB) for stage in stages] == [512, 170]
    stated = KvLayout(tensor_block_bytes=LAYER, tensors_by_stage=[1, 3])
    assert offload_blocks(stated, 16 * MIB) == [512, 170]


@pytest.mark.parametrize(("gigabytes", "blocks"), [(1500, [47_095, 28_257]), (1499, [47_063, 28_238])])
def test_k3s_blocks_follow_from_its_layout(gigabytes: int, blocks: list[int]) -> None:
    """1500 GB: what the publication's logs say. 1499 GB is what its rule gives on its nodes: there
    28,257, copied from a log as it was, would be 19 too many."""
    recipe = load(BASE / "config/recipes/kimik3-fp4-mi355x-vllm-agentic-tp8pp2.yaml", Recipe)
    assert recipe.kv_offload is not None
    assert recipe.kv_offload.layout is not None
    assert offload_blocks(recipe.kv_offload.layout, gigabytes * GB // 8) == blocks


def test_a_scheduler_that_already_counts_low_enough_is_left_alone() -> None:
    stages = [places(3, 2048), places(1, 2048)]
    assert capped_capacity(stages[0], 16 * MIB, widest_block_bytes(stages)) == 16 * MIB
