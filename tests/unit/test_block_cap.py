"""The KV offload block cap: the scheduler's count is the smallest stage's, by vLLM's own formulas."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from serve_repro_hooks.kv_offload_block_cap import capped_capacity, widest_block_bytes

MIB = 1_048_576
LAYER = 32_768
"""Bytes of one layer's part of a block."""


def layout(layers: int, blocks: int = 2048) -> SimpleNamespace:
    """What a worker with so many layers says of its cache: each tensor states the whole size."""
    tensor = SimpleNamespace(size=layers * LAYER * blocks)
    return SimpleNamespace(num_blocks=blocks, kv_cache_tensors=[tensor, tensor])


def scheduler_blocks(config: SimpleNamespace, capacity_bytes: int) -> int:
    """vLLM 0.32.0: GPU blocks x capacity / GPU bytes, at least one."""
    return int(max(1, config.num_blocks * capacity_bytes // config.kv_cache_tensors[0].size))


def worker_blocks(config: SimpleNamespace, capacity_bytes: int) -> int:
    """vLLM 0.32.0: capacity / the worker's own bytes a block, at least one."""
    own = config.kv_cache_tensors[0].size // config.num_blocks
    return int(max(1, capacity_bytes // own))


@pytest.mark.parametrize("split", [(1, 3), (3, 1), (2, 2), (47, 46), (1, 92), (3, 5)])
@pytest.mark.parametrize("capacity", [16 * MIB, 16 * MIB - 1, 187_375_000_000, 1000])
@pytest.mark.parametrize("blocks", [1, 7, 2048])
def test_the_scheduler_counts_what_the_smallest_stage_has(
    split: tuple[int, int], capacity: int, blocks: int
) -> None:
    stages = [layout(layers, blocks) for layers in split]
    capped = capped_capacity(stages[0], capacity, widest_block_bytes(stages))
    smallest = min(worker_blocks(stage, capacity) for stage in stages)
    assert scheduler_blocks(stages[0], capped) == smallest


def test_without_the_cap_the_counts_of_uneven_stages_differ() -> None:
    stages = [layout(1), layout(3)]
    assert scheduler_blocks(stages[0], 16 * MIB) == 512
    assert [worker_blocks(stage, 16 * MIB) for stage in stages] == [512, 170]


def test_a_scheduler_that_already_counts_low_enough_is_left_alone() -> None:
    stages = [layout(3), layout(1)]
    assert capped_capacity(stages[0], 16 * MIB, widest_block_bytes(stages)) == 16 * MIB
