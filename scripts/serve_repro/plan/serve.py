"""One rank's `vllm serve` command and environment, from recipe, site and rank."""

from __future__ import annotations

import json

from serve_repro.command import Command
from serve_repro.patches.gemm_table import TABLE, TABLE_VARIABLE
from serve_repro.plan import sizes
from serve_repro.recipe.recipe import Compilation, Flag, KvOffload, Recipe, Speculation
from serve_repro.recipe.site import Site
from serve_repro.runtimes.view import View

HASH_SEED = "42"
"""Block hashes are compared between ranks once blocks are offloaded: all must hash alike."""

OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "PYTHONNOUSERSITE": "1",
}
"""A server that is measured reads verified files, never the network or a user's own packages."""


def serve_command(recipe: Recipe, site: Site, rank: int, ranks: int, view: View) -> Command:
    """`vllm serve` for one rank, as that rank sees paths."""
    flags = serve_flags(recipe, site, view)
    if ranks > 1:
        flags |= {
            "nnodes": ranks,
            "node-rank": rank,
            "master-addr": "${MASTER_ADDR}",
            "master-port": "${MASTER_PORT}",
        }
    if rank == 0:
        flags |= {"host": site.api_host, "port": "${API_PORT}"}
    else:
        flags |= {"headless": True}
    argv = [*view.vllm, "serve", view.weights, *flag_words(flags)]
    return Command(argv=argv, env=serve_env(recipe, site, rank, view))


def serve_flags(recipe: Recipe, site: Site, view: View) -> dict[str, Flag]:
    """Flags that all ranks share, in vLLM's own spelling without dashes."""
    serve = recipe.serve
    flags: dict[str, Flag] = {
        "served-model-name": recipe.model.served_name,
        "tensor-parallel-size": recipe.topology.tensor_parallel,
        "pipeline-parallel-size": recipe.topology.pipeline_parallel,
        "max-model-len": serve.max_model_len,
        **serve.flags,
    }
    flags["enable-prefix-caching" if serve.prefix_caching else "no-enable-prefix-caching"] = True
    if serve.async_scheduling is not None:
        flags["async-scheduling" if serve.async_scheduling else "no-async-scheduling"] = True
    if serve.enforce_eager:
        flags["enforce-eager"] = True
    if recipe.compilation is not None:
        flags["compilation-config"] = compilation_config(recipe.compilation)
    if recipe.kv_offload is not None:
        _, per_rank = sizes.offload_bytes_per_rank(recipe.kv_offload, recipe.topology, site)
        flags["kv-transfer-config"] = kv_transfer_config(recipe.kv_offload, per_rank)
    if recipe.speculation is not None:
        flags["speculative-config"] = speculative_config(recipe.speculation, view.draft)
    return flags


def flag_words(flags: dict[str, Flag]) -> list[str]:
    """Flags as command-line words: true is a bare flag, a mapping is JSON, a list repeats words."""
    words: list[str] = []
    for name, value in flags.items():
        if value is False:
            continue
        words.append(f"--{name}")
        if isinstance(value, dict):
            words.append(json.dumps(value, separators=(",", ":")))
        elif isinstance(value, list):
            words += value
        elif value is not True:
            words.append(str(value))
    return words


def serve_env(recipe: Recipe, site: Site, rank: int, view: View) -> dict[str, str]:
    """A rank's environment. Later lines win: the recipe's own values are never overridden."""
    env = {
        **OFFLINE,
        "SERVE_REPRO_RUN_ID": "${RUN_ID}",
        "SERVE_REPRO_RANK": str(rank),
        "TMPDIR": view.scratch,
        "VLLM_CACHE_ROOT": f"{view.cache}/vllm",
        "TRITON_CACHE_DIR": f"{view.cache}/triton",
        "TORCHINDUCTOR_CACHE_DIR": f"{view.cache}/inductor",
        "VLLM_HOST_IP": "${HOST_ADDR}",
        "GLOO_SOCKET_IFNAME": "${INTERFACE}",
    }
    if recipe.accelerator != "cpu":
        env["NCCL_SOCKET_IFNAME"] = "${INTERFACE}"
    if recipe.kv_offload is not None:
        env["PYTHONHASHSEED"] = HASH_SEED
    if recipe.patches:
        hooks = f"{view.patches}/hooks"
        env["PYTHONPATH"] = hooks if view.overlay is None else f"{view.overlay}:{hooks}"
        env["SERVE_REPRO_PATCH_SET"] = f"{view.patches}/set.json"
        env["SERVE_REPRO_ATTESTATIONS"] = f"{view.results}/attestations.jsonl"
    if recipe.tuned_gemm is not None:
        env[TABLE_VARIABLE] = f"{view.patches}/{TABLE}"
    return {**env, **site.env, **recipe.serve.env}


def compilation_config(compilation: Compilation) -> dict[str, object]:
    """vLLM's --compilation-config."""
    graphs = compilation.cuda_graphs
    return {
        "mode": compilation.mode,
        "cudagraph_mode": graphs.mode,
        "max_cudagraph_capture_size": graphs.capture_max,
        "custom_ops": compilation.custom_ops,
        "cudagraph_capture_sizes": sizes.capture_sizes(graphs),
    }


def kv_transfer_config(offload: KvOffload, bytes_per_rank: int) -> dict[str, object]:
    """vLLM's --kv-transfer-config."""
    return {
        "kv_connector": offload.connector,
        "kv_role": "kv_both",
        "kv_connector_extra_config": {
            "cpu_bytes_to_use_per_rank": bytes_per_rank,
            "lazy_offload": offload.lazy,
        },
    }


def speculative_config(speculation: Speculation, draft: str) -> dict[str, object]:
    """vLLM's --speculative-config."""
    config: dict[str, object] = {
        "model": draft,
        "num_speculative_tokens": speculation.draft_tokens,
        "method": speculation.method,
        **speculation.options,
        "rejection_sample_method": speculation.rejection,
    }
    if speculation.acceptance_length is not None:
        config["synthetic_acceptance_length"] = speculation.acceptance_length
    return config
