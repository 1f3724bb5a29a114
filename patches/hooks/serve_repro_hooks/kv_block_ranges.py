"""KV offload, for looking into a fault: which blocks each copy is about to touch, in a bounded log.

A copy engine checks no block id; where one lies beyond a pool it dies, or touches foreign memory,
without a word. Here a line is written before the copy begins, to `block_ranges_<pid>.jsonl` beside
the attestations. Only a copy that reaches further than all before it is worth a line, and there are
MOST_LINES of them at most, and one more for the first that reaches beyond a pool.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

MOST_LINES = 256


class BlockRanges:
    """What one worker's copies have touched so far.

    Args:
        path: the log, made when its first line is written.
        pools: blocks in the device's and the host's pool; ids from this number on do not exist.
    """

    def __init__(self, path: Path, pools: dict[str, int]) -> None:
        self.path = path
        self.pools = pools
        self.copies = 0
        self._lines = 0
        self._reach: dict[str, tuple[int, int]] = {}
        self._was_beyond = False

    def note(self, is_store: bool, blocks: dict[str, list[int]]) -> None:
        """A copy is about to begin.

        Args:
            is_store: from device to host, rather than back.
            blocks: block ids in each pool.
        """
        self.copies += 1
        ranges = {pool: (min(ids), max(ids)) for pool, ids in blocks.items() if ids}
        wider = [pool for pool, reach in ranges.items() if self._widen(pool, reach)]
        beyond = [pool for pool, (low, high) in ranges.items() if low < 0 or high >= self.pools[pool]]
        first_beyond = bool(beyond) and not self._was_beyond
        self._was_beyond = self._was_beyond or first_beyond
        if not first_beyond and (not wider or self._lines >= MOST_LINES):
            return
        self._lines += 1
        line = {"copy": self.copies, "store": is_store, "pools": self.pools, "beyond": beyond, **ranges}
        with open(self.path, "a", encoding="utf-8") as stream:
            stream.write(json.dumps(line) + "\n")

    def _widen(self, pool: str, reach: tuple[int, int]) -> bool:
        before = self._reach.get(pool, reach)
        after = min(before[0], reach[0]), max(before[1], reach[1])
        changed = pool not in self._reach or after != before
        self._reach[pool] = after
        return changed


def install() -> list[str]:
    """Note each copy of the offload worker before it begins; returns what was replaced."""
    from vllm.v1.simple_kv_offload.worker import SimpleCPUOffloadWorker

    register = SimpleCPUOffloadWorker.register_kv_caches
    path = Path(os.environ["SERVE_REPRO_ATTESTATIONS"]).with_name(f"block_ranges_{os.getpid()}.jsonl")

    def register_kv_caches(self: Any, kv_caches: Any) -> None:
        register(self, kv_caches)
        if not self.num_cpu_blocks:  # vLLM found nothing to offload
            return
        pools = {"device": int(self.kv_cache_config.num_blocks), "host": int(self.num_cpu_blocks)}
        ranges, launch = BlockRanges(path, pools), self._backend.launch_copy

        def launch_copy(
            src_blocks: list[int], dst_blocks: list[int], is_store: bool, *rest: Any, **options: Any
        ) -> None:
            device, host = (src_blocks, dst_blocks) if is_store else (dst_blocks, src_blocks)
            ranges.note(is_store, {"device": device, "host": host})
            launch(src_blocks, dst_blocks, is_store, *rest, **options)

        # On the object: whichever engine this worker has, and whichever hook brought it.
        self._backend.launch_copy = launch_copy

    SimpleCPUOffloadWorker.register_kv_caches = register_kv_caches
    return ["SimpleCPUOffloadWorker.register_kv_caches"]
