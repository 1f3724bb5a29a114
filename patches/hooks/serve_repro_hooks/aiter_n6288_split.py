"""aiter's bf16 GEMM with a [6288, 7168] weight: multiplied in parts that have tuned kernels.

6288 is no multiple of 128 (16 are left over), so no tuned kernel takes it whole, and the fallback
faults on gfx950 with many rows, or while a graph is captured. 3584 and 896 are multiples; the last
16 columns go by themselves. 6144 rows are cut as well, so that the tuned rows for 614 apply.
Each part of the weight gets its own part of the bias.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

WEIGHT = (6288, 7168)
"""[N, K] of the weight that is split."""
COLUMNS = (3584, 896, 896, 896, 16)
"""Parts of N."""
ROWS = {6144: (614,) * 10 + (4,)}
"""Parts of M, for the row counts that are cut."""


def splits(weight: Any, scales: tuple[Any, ...]) -> bool:
    """Whether a product is one of those that fault.

    Args:
        weight: [N, K]. One that aiter has shuffled is not: its rows do not lie one after the other.
        scales: scale_a, scale_b, scale_c; a product with any of them is not bf16's.
    """
    shuffled = getattr(weight, "is_shuffled", False)
    return tuple(weight.shape) == WEIGHT and not shuffled and all(scale is None for scale in scales)


def product(gemm: Callable[..., Any], rows: Any, weight: Any, bias: Any, otype: Any) -> Any:
    """rows x weight.T + bias, by parts: [..., K] and [N, K] give [..., N] in `otype`."""
    import torch

    flat = rows.reshape(-1, rows.shape[-1])
    weights = weight.split(COLUMNS)
    biases = bias.split(COLUMNS) if bias is not None else [None] * len(COLUMNS)
    parts = [
        torch.cat(
            [gemm(part, own, own_bias, otype) for own, own_bias in zip(weights, biases, strict=True)],
            dim=-1,
        )
        for part in flat.split(ROWS.get(flat.shape[0], flat.shape[0]))
    ]
    out = parts[0] if len(parts) == 1 else torch.cat(parts)
    return out.view(*rows.shape[:-1], WEIGHT[0])


def install() -> list[str]:
    """Put the split in front of aiter's GEMM; returns what was replaced."""
    from aiter import tuned_gemm

    gemm: Callable[..., Any] = tuned_gemm.gemm_a16w16

    def gemm_a16w16(
        A: Any,
        B: Any,
        bias: Any = None,
        otype: Any = None,
        scale_a: Any = None,
        scale_b: Any = None,
        scale_c: Any = None,
    ) -> Any:
        if splits(B, (scale_a, scale_b, scale_c)):
            return product(gemm, A, B, bias, otype)
        return gemm(A, B, bias, otype, scale_a, scale_b, scale_c)

    tuned_gemm.gemm_a16w16 = gemm_a16w16
    return ["aiter.tuned_gemm.gemm_a16w16"]
