"""KV offload: the scheduler hands out no host block that any pipeline stage lacks.

Each worker divides its host memory by the block bytes of its own layers; the scheduler divides the
same memory by the block bytes of the first stage alone. Where a later stage holds more layers, the
scheduler numbers more blocks than that stage has. Nothing checks the number when a block is copied.

The cap is derived, not typed: the engine core has every worker's cache layout when it makes the
scheduler's. The widest block among them decides how many blocks there are on all stages.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def cache_bytes(config: Any) -> int:
    """Bytes of one worker's whole KV cache, as vLLM's scheduler counts them.

    Where tensors are places in one allocation (they state the bytes between blocks), each gives the
    size of that allocation; else each gives its own.

    Args:
        config: vLLM's KVCacheConfig of the worker.
    """
    tensors = config.kv_cache_tensors
    if any(tensor.block_stride for tensor in tensors):
        return int(tensors[0].size)
    return sum(int(tensor.size) for tensor in tensors)


def widest_block_bytes(configs: list[Any]) -> int:
    """Bytes of one block of all layers, on the stage where it is largest.

    Args:
        configs: vLLM's KVCacheConfig of each worker.
    """
    return max(cache_bytes(config) // int(config.num_blocks) for config in configs)


def capped_capacity(config: Any, capacity_bytes: int, widest: int) -> int:
    """The host memory in bytes that makes the scheduler's formula give the capped block count.

    Args:
        config: the scheduler's KVCacheConfig.
        capacity_bytes: host memory of each worker.
        widest: bytes a block on the stage where it is largest.
    """
    total, blocks = cache_bytes(config), int(config.num_blocks)
    derived = max(1, blocks * capacity_bytes // total)
    cap = max(1, capacity_bytes // widest)
    # Rounded up: the formula rounds down, and must arrive at exactly the cap.
    return capacity_bytes if derived <= cap else -(-cap * total // blocks)


def install() -> list[str]:
    """Clamp the scheduler's block count; returns what was replaced."""
    from vllm.v1.engine import core
    from vllm.v1.simple_kv_offload.manager import SimpleCPUOffloadScheduler

    merge: Callable[[list[Any]], Any] = core.generate_scheduler_kv_cache_config
    derive: Callable[[Any, int], Any] = SimpleCPUOffloadScheduler._derive_cpu_config
    widest = 0

    def noting(kv_cache_configs: list[Any]) -> Any:
        nonlocal widest
        widest = widest_block_bytes(kv_cache_configs)
        return merge(kv_cache_configs)

    def capped(gpu_config: Any, cpu_capacity_bytes: int) -> Any:
        if not widest:
            raise RuntimeError("the scheduler was made before the workers' cache layouts were known")
        return derive(gpu_config, capped_capacity(gpu_config, cpu_capacity_bytes, widest))

    core.generate_scheduler_kv_cache_config = noting
    SimpleCPUOffloadScheduler._derive_cpu_config = staticmethod(capped)
    return [
        "v1.engine.core.generate_scheduler_kv_cache_config",
        "SimpleCPUOffloadScheduler._derive_cpu_config",
    ]
