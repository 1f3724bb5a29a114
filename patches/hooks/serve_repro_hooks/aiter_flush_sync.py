"""aiter's custom all-reduce: every rank takes part in each exchange of graph buffers.

After a graph is captured, ranks exchange the handles of new buffers through keys that are numbered
by a counter of their own. A rank without new buffers leaves before the exchange, its counter stays
behind, and from then on it waits for keys that nobody writes: the group hangs. Such a rank is made
to exchange nothing instead.
"""

from __future__ import annotations

from typing import Any


def install() -> list[str]:
    """Wrap the pool's flush; returns what was replaced."""
    import torch
    from aiter.dist.device_communicators.custom_all_reduce import IPCBufferPool

    flush = IPCBufferPool.flush_graph_buffers

    def flush_graph_buffers(self: Any, *args: Any, **options: Any) -> None:
        # The counter tells whether it took part; how buffers are counted differs by release.
        before = self._ipc_seq
        flush(self, *args, **options)
        if self._ipc_seq == before:
            self._gather_ipc_meta((torch.empty(0, dtype=torch.uint8), torch.empty(0, dtype=torch.int64)))

    IPCBufferPool.flush_graph_buffers = flush_graph_buffers
    return ["IPCBufferPool.flush_graph_buffers"]
