"""aiter's own gemm_a16w16, split and whole, on the CPU: only its device calls are stand-ins.

Started by test_aiter_hooks.py with the serving environment's Python:

    aiter_product.py <aiter's sources> <hooks> <site-packages with pandas>     one JSON line a case
"""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812

sources, hooks, others = sys.argv[1:]
sys.path.insert(0, hooks)
sys.path.append(others)

N, K = 6288, 7168
TABLE = Path(sources) / "tuned.csv"
TABLE.write_text(
    "cu_num,M,N,K,bias,dtype,outdtype,scaleAB,libtype,solidx,splitK,kernelName\n"
    + "".join(
        f"256,614,{n},{K},{bias},torch.bfloat16,torch.bfloat16,False,{library},0,1,k\n"
        for n, library in ((3584, "hipblaslt"), (896, "asm"))
        for bias in (False, True)
    ),
    encoding="utf-8",
)


def module(name: str, **contents: Any) -> ModuleType:
    """A module of this name with these contents."""
    made = ModuleType(name)
    vars(made).update(contents)
    sys.modules[name] = made
    return made


device_calls: list[str] = []


def hipb_mm(rows: Any, weights: Any, _: int, bias: Any, otype: Any, *scales: Any) -> Any:
    device_calls.append("hipblaslt")
    return linear(rows, weights.t(), bias).to(otype)


def asm(rows: Any, weights: Any, _: Any, bias: Any, *choice: Any) -> Any:
    device_calls.append("asm")
    return linear(rows, weights, bias)


dtypes = module(
    "aiter.dtypes", fp8=torch.float8_e4m3fn, fp16=torch.float16, bf16=torch.bfloat16, fp32=torch.float32
)
package = module(
    "aiter",
    dtypes=dtypes,
    gemm_a16w16_asm=asm,
    hipb_create_extension=lambda: None,
    hipb_mm=hipb_mm,
    logger=logging.getLogger("aiter"),
)
package.__path__ = [str(Path(sources) / "aiter")]
module("aiter.jit")
module("aiter.jit.core", AITER_CONFIG_GEMM_BF16_FILE=str(TABLE), AITER_LOG_TUNED_CONFIG=False)
module("aiter.jit.utils")
module("aiter.jit.utils.chip_info", get_cu_num=lambda: 256)
module("aiter.jit.utils.torch_guard", torch_compile_guard=lambda **_: lambda function: function)
module("aiter.ops")
module("aiter.ops.gemm_op_common", get_padded_m=lambda m, *_: m)

from aiter import tuned_gemm  # noqa: E402


def linear(rows: Any, weights: Any, bias: Any = None) -> Any:
    """On a GPU a device call; here summed in float32 and rounded once, which CPUs do faster."""
    return F.linear(rows.float(), weights.float(), bias if bias is None else bias.float()).to(rows.dtype)


tuned_gemm.F = SimpleNamespace(linear=linear)

from serve_repro_hooks import aiter_n6288_split  # noqa: E402

whole = tuned_gemm.gemm_a16w16
parts: list[list[int]] = []


def noting(rows: Any, weights: Any, *rest: Any, **options: Any) -> Any:
    """The real function; notes the shape of each call."""
    parts.append([rows.numel() // rows.shape[-1], weights.shape[0]])
    return whole(rows, weights, *rest, **options)


tuned_gemm.gemm_a16w16 = noting
aiter_n6288_split.install()

torch.manual_seed(0)


def sparse(*shape: int) -> Any:
    """-1, 0 and 1, few of them other than 0: sums below 256, exact in bf16 in whatever order."""
    signs = torch.randint(0, 2, shape, dtype=torch.int8) * 2 - 1
    return (signs * (torch.rand(shape) < 0.06)).to(torch.bfloat16)


weight, real_weight = sparse(N, K), torch.randn(N, K).to(torch.bfloat16)
bias = torch.randint(-100, 100, (N,)).to(torch.bfloat16)


def tell(case: str, rows: Any, weights: Any, **options: Any) -> None:
    """Multiply both ways, and write what was seen."""
    parts.clear()
    device_calls.clear()
    split = tuned_gemm.tgemm.mm(rows, weights, **options)
    seen, calls = [*parts], sorted(set(device_calls))
    expected = whole(rows, weights, **options)
    difference = (split.double() - expected.double()).abs().max().item()
    line = {
        "case": case,
        "equal": torch.equal(split, expected),
        "difference": difference,
        "largest": expected.double().abs().max().item(),
        "same_kind": (split.shape, split.dtype) == (expected.shape, expected.dtype),
        "parts": seen,
        "device_calls": calls,
    }
    print(json.dumps(line), flush=True)


tell("1", sparse(1, K), weight)
tell("43", sparse(43, K), weight)
tell("43 bias", sparse(43, K), weight, bias=bias)
tell("614 bias", sparse(614, K), weight, bias=bias)
tell("6144 bias", sparse(6144, K), weight, bias=bias)
tell("3-d", sparse(2, 43, K), weight, bias=bias)
tell("3-d strided", sparse(43, 2, K).transpose(0, 1), weight, bias=bias)
tell("float32", sparse(43, K), weight, otype=torch.float32)
tell("real numbers", torch.randn(43, K).to(torch.bfloat16), real_weight)
tell("other shape", sparse(43, K), weight[:6272])
tell("scaled", sparse(43, K), weight, scale_a=torch.ones(1))
weight.is_shuffled = True
tell("shuffled", sparse(43, K), weight)
