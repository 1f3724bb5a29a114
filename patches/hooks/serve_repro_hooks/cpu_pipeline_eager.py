"""Eager mode under pipeline parallelism on the CPU: receive buffers for the later stages.

vLLM allocates them during the warm-up run, which the CPU worker skips in eager mode. They are
allocated here right after the weights are loaded: [max batched tokens, hidden size] each.
"""

from __future__ import annotations

from typing import Any


def install() -> list[str]:
    """Wrap the CPU model runner's load_model; returns what was replaced."""
    import torch
    from vllm.distributed.parallel_state import get_pp_group
    from vllm.v1.worker.cpu_model_runner import CPUModelRunner

    load_weights = CPUModelRunner.load_model

    def load_model(self: Any, *args: Any, **options: Any) -> None:
        load_weights(self, *args, **options)
        if self.intermediate_tensors is None and not get_pp_group().is_first_rank:
            self.intermediate_tensors = self.model.make_empty_intermediate_tensors(
                batch_size=self.max_num_tokens,
                dtype=self.model_config.dtype,
                device=torch.device("cpu"),
            )

    CPUModelRunner.load_model = load_model
    return ["CPUModelRunner.load_model"]
