"""KV offload on the CPU: blocks are copied with tensor indexing, synchronously, in host memory.

The connector's worker wants CUDA streams, events and a batch-copy engine. On the CPU there is
nothing to overlap: a copy is done when the call returns, so streams and events are always "done".
A block id beyond a buffer raises IndexError here, where the GPU engine would touch foreign memory.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any


class _Done:
    """An event, or a stream, of work that is already finished."""

    def __init__(self, *args: Any, **options: Any) -> None:
        pass

    def record(self, *stream: Any) -> None:
        pass

    def wait_event(self, event: Any) -> None:
        pass

    def synchronize(self) -> None:
        pass

    def query(self) -> bool:
        return True

    @staticmethod
    def priority_range() -> tuple[int, int]:
        return (0, 0)


class _HostCopies:
    """The copy engine's interface: `init`, `launch_copy`, `shutdown`."""

    def init(self, gpu_caches: Any, cpu_caches: Any, *streams: Any) -> None:
        """Pair each layer's device cache with its host cache; first dimension: blocks."""
        self._pairs = [(gpu_caches[name], cpu_caches[name]) for name in gpu_caches]

    def launch_copy(
        self,
        src_blocks: list[int],
        dst_blocks: list[int],
        is_store: bool,
        event_idx: int,
        events_list: list[tuple[int, Any]],
        wait_event: Any = None,
    ) -> None:
        """Copy whole blocks of every layer, then report the event as finished."""
        for device_cache, host_cache in self._pairs:
            source, target = (device_cache, host_cache) if is_store else (host_cache, device_cache)
            target[dst_blocks] = source[src_blocks]
        events_list.append((event_idx, _Done()))

    def shutdown(self) -> None:
        """There is no thread to stop."""


def install() -> list[str]:
    """Give the offload worker host copies and finished events; returns what was replaced."""
    import torch
    from vllm.v1.simple_kv_offload import worker

    class HostTorch:
        """The worker module's view of torch: events and streams are finished, all else is torch."""

        Event = _Done
        cuda = SimpleNamespace(Stream=_Done, current_stream=_Done)

        def __getattr__(self, name: str) -> Any:
            return getattr(torch, name)

    worker.torch = HostTorch()
    worker.DmaCopyBackend = _HostCopies
    return ["simple_kv_offload.worker.torch", "simple_kv_offload.worker.DmaCopyBackend"]
