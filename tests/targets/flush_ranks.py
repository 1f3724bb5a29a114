"""Two ranks of a stand-in for aiter's buffer pool, one of which captured no new buffer.

Started by test_aiter_hooks.py:  flush_ranks.py <stand-in> <hooks> <yes|no: install the hook>
"""

from __future__ import annotations

import sys
import threading

stand_in, hooks, install = sys.argv[1:]
sys.path[:0] = [stand_in, hooks]

from aiter.dist.device_communicators.custom_all_reduce import IPCBufferPool, Store  # noqa: E402
from serve_repro_hooks import aiter_flush_sync  # noqa: E402

if install == "yes":
    print(aiter_flush_sync.install())

said: dict[int, str] = {}


def rank(number: int, pool: IPCBufferPool) -> None:
    """Capture two graphs; the second rank has new buffers only in the second one."""
    try:
        pool.flush_graph_buffers([2, 0][number])
        pool.flush_graph_buffers(1)
        said[number] = f"registered {pool.registered}"
    except TimeoutError as error:
        said[number] = f"hangs: {error}"


store = Store()
threads = [
    threading.Thread(target=rank, args=(number, IPCBufferPool(store, number, 2))) for number in (0, 1)
]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(*(f"rank {number} {said[number]}" for number in (0, 1)), sep="\n")
