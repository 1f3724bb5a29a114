"""Synthetic acceptance on the CPU: drafts are accepted at set rates, whatever the model says.

vLLM draws one uniform number per drafted token and turns the asked acceptance length into one rate
per position. The CPU kernels refuse that mode; here it is in plain Python, other modes untouched.
"""

from __future__ import annotations

from typing import Any

GREEDY = "_rejection_greedy_sample_kernel_impl"
RANDOM = "_rejection_random_sample_kernel_impl"


def accept(
    output: Any,
    ends: list[int],
    drafts: Any,
    bonus: Any,
    fallback: Any,
    uniform: Any,
    rates: Any,
    wanted: list[bool],
) -> None:
    """Fill accepted tokens in place.

    Args:
        output: [requests, drafts + 1] token ids, written row by row.
        ends: running count of drafted tokens after each request.
        drafts, fallback, uniform: [all drafted tokens]: ids, replacement ids, draws in [0, 1).
        bonus: [requests, 1] ids that follow when all drafts were accepted.
        rates: [drafts] chance that position p is accepted, given that p - 1 was.
        wanted: which requests this call is for.
    """
    start = 0
    for request, end in enumerate(ends):
        if wanted[request]:
            for position in range(end - start):
                token = start + position
                if float(uniform[token]) >= float(rates[position]):
                    output[request, position] = fallback[token]
                    break
                output[request, position] = drafts[token]
            else:
                output[request, end - start] = bonus[request].reshape(-1)[0]
        start = end


def install() -> list[str]:
    """Put the synthetic mode in front of the CPU kernels; returns what was replaced."""
    from vllm.utils import cpu_triton_utils as kernels

    greedy_kernel, random_kernel = getattr(kernels, GREEDY), getattr(kernels, RANDOM)

    # vLLM binds a kernel's arguments by name, so these are the kernels' own names.
    def greedy(
        output_token_ids: Any,
        cu_num_draft_tokens: Any,
        draft_token_ids: Any,
        target_argmax: Any,
        bonus_token_ids: Any,
        is_greedy: Any,
        max_spec_len: Any,
        uniform_probs: Any = None,
        synthetic_conditional_rates: Any = None,
        SYNTHETIC_MODE: bool = False,
    ) -> None:
        if not SYNTHETIC_MODE:
            greedy_kernel(
                output_token_ids,
                cu_num_draft_tokens,
                draft_token_ids,
                target_argmax,
                bonus_token_ids,
                is_greedy,
                max_spec_len,
            )
            return
        ends = cu_num_draft_tokens.tolist()
        wanted = [True] * len(ends) if is_greedy is None else [bool(flag) for flag in is_greedy]
        accept(
            output_token_ids,
            ends,
            draft_token_ids,
            bonus_token_ids,
            target_argmax,
            uniform_probs,
            synthetic_conditional_rates,
            wanted,
        )

    def random(
        output_token_ids: Any,
        cu_num_draft_tokens: Any,
        draft_token_ids: Any,
        draft_probs: Any,
        target_probs: Any,
        bonus_token_ids: Any,
        recovered_token_ids: Any,
        uniform_probs: Any,
        is_greedy: Any,
        max_spec_len: Any,
        vocab_size: Any,
        synthetic_conditional_rates: Any = None,
        NO_DRAFT_PROBS: bool = False,
        SYNTHETIC_MODE: bool = False,
    ) -> None:
        if not SYNTHETIC_MODE:
            random_kernel(
                output_token_ids,
                cu_num_draft_tokens,
                draft_token_ids,
                draft_probs,
                target_probs,
                bonus_token_ids,
                recovered_token_ids,
                uniform_probs,
                is_greedy,
                max_spec_len,
                vocab_size,
                NO_DRAFT_PROBS=NO_DRAFT_PROBS,
            )
            return
        ends = cu_num_draft_tokens.tolist()
        wanted = [not bool(flag) for flag in is_greedy]
        accept(
            output_token_ids,
            ends,
            draft_token_ids,
            bonus_token_ids,
            recovered_token_ids,
            uniform_probs,
            synthetic_conditional_rates,
            wanted,
        )

    setattr(kernels, GREEDY, greedy)
    setattr(kernels, RANDOM, random)
    return [f"cpu_triton_utils.{GREEDY}", f"cpu_triton_utils.{RANDOM}"]
