"""What InferenceX's aggregate says of a point that no measurement tells."""

from __future__ import annotations

from typing import Any

from serve_repro.plan.model import Plan
from serve_repro.recipe.recipe import Recipe

SCENARIO = "agentic-coding"
FRAMEWORK = "vllm"


def labels(recipe: Recipe, plan: Plan, image: str) -> dict[str, Any]:
    """Identity fields of the aggregate, by InferenceX's names.

    One server that prefills and decodes counts as its prefill worker: it has no decode worker, whose
    parallelism is then 0 or 1 in InferenceX's own files too. Its model prefix is the first word of
    an entry's key, and so of the recipe's name.

    Args:
        recipe: what is measured.
        plan: the point's plan.
        image: name and tag of the image, or envs/<name>; the digest is told by the point.
    """
    speculation, offload, memory = recipe.speculation, recipe.kv_offload, plan.memory
    ranks = len(plan.ranks)
    return {
        "hw": recipe.accelerator,
        "conc": plan.concurrency,
        "image": image,
        "model": recipe.model.id,
        "infmax_model_prefix": recipe.name.split("-")[0],
        "framework": FRAMEWORK,
        "precision": recipe.model.precision,
        "spec_decoding": speculation.label if speculation else "none",
        "disagg": False,
        "scenario_type": SCENARIO,
        "is_multinode": ranks > 1,
        "tp": plan.topology.tensor_parallel,
        "ep": 1,
        "dp_attention": "false",
        "kv_offloading": "dram" if offload else "none",
        "kv_offload_backend": {"name": offload.backend_name} if offload else None,
        "allocated_cpu_dram_gb": memory.dram_gb_per_node if memory else 0,
        **_shape(plan, several=ranks > 1),
    }


def _shape(plan: Plan, *, several: bool) -> dict[str, Any]:
    stages = plan.topology.pipeline_parallel
    if not several:
        return {"pp": stages, "dcp_size": 1, "pcp_size": 1}
    prefill = {
        "num_workers": 1,
        "tp": plan.topology.tensor_parallel,
        "pp": stages,
        "dcp_size": 1,
        "pcp_size": 1,
        "ep": 1,
        "dp_attention": "false",
    }
    decode = prefill | {"num_workers": 0, "tp": 0, "pp": 1, "ep": 0}
    return {
        **{f"prefill_{name}": value for name, value in prefill.items()},
        "num_prefill_gpu": plan.topology.world_size,
        **{f"decode_{name}": value for name, value in decode.items()},
        "num_decode_gpu": 0,
    }
