"""What the publication starts on each rank, as values: its containers and its `vllm serve`.

Source: InferenceX PR #2678 at commit d0173b92, benchmarks/multi_node/agentic (the job script's
docker run, and the serve script's flags and variables), on the path that its CI takes but with DSpark
on. A value of ... is one that only a launch knows.
"""

from __future__ import annotations

import json

OPTIONS = {
    "--device": ["/dev/dri", "/dev/kfd", "/dev/infiniband"],
    "--ulimit": ["memlock=-1", "stack=67108864"],
    "--shm-size": ["128G"],
    "--network": ["host"],
    "--ipc": ["host"],
    "--group-add": ["video"],
    "--cap-add": ["SYS_PTRACE"],
    "--security-opt": ["seccomp=unconfined"],
    "--privileged": [],
    "--rm": [],
    "--init": [],
    "--entrypoint": ["bash"],
    "--add-host": ["..."],
    "--workdir": ["/workspace"],
}
"""Options of docker run, by name."""

MOUNTS = {
    "/sys": "rw",
    "/tmp": "rw",
    "/workspace": "rw",
    "/hf_cache": "rw",
    "/results": "rw",
    "/logs/agentic": "rw",
    "/model": "ro",
}
"""Place in the container -> how it is mounted."""

ENVIRONMENT = {
    "GLOO_SOCKET_IFNAME": "...",
    "NCCL_SOCKET_IFNAME": "...",
    "NCCL_IB_HCA": "rdma0,rdma1,rdma2,rdma3,rdma4,rdma5,rdma6,rdma7",
    "IBDEVICES": "rdma0,rdma1,rdma2,rdma3,rdma4,rdma5,rdma6,rdma7",
    "HF_HOME": "/hf_cache",
    "HUGGINGFACE_HUB_CACHE": "/hf_cache",
    "PYTHONNOUSERSITE": "1",
    "PYTHONPATH": "...",
    "AITER_CONFIG_GEMM_BF16": "/tmp/aiter_configs/bf16_tuned_gemm.csv",
    "VLLM_ROCM_USE_AITER": "1",
    "VLLM_ROCM_AITER_MLA_ASM_PADDING": "asm",
    "VLLM_ROCM_USE_AITER_MOE_SITUV2_A8W4": "1",
    "AITER_BF16_FP8_MOE_BOUND": "0",
    "SAFETENSORS_FAST_GPU": "1",
    "VLLM_USE_BREAKABLE_CUDAGRAPH": "0",
    "HSA_NO_SCRATCH_RECLAIM": "1",
    "VLLM_ENGINE_READY_TIMEOUT_S": "7200",
    "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS": "3600",
    "PYTHONHASHSEED": "42",
}
"""Variables that vLLM or a library reads; those of the publication's own scripts are left out."""

FLAGS: dict[str, object] = {
    "served-model-name": "moonshotai/Kimi-K3",
    "trust-remote-code": True,
    "language-model-only": True,
    "moe-backend": "auto",
    "tensor-parallel-size": "8",
    "pipeline-parallel-size": "2",
    "distributed-timeout-seconds": "1800",
    "load-format": "fastsafetensors",
    "gpu-memory-utilization": "0.84",
    "max-num-seqs": "20",
    "max-num-batched-tokens": "8192",
    "max-model-len": "1048576",
    "enable-auto-tool-choice": True,
    "tool-call-parser": "kimi_k3",
    "reasoning-parser": "kimi_k3",
    "kv-cache-dtype": "fp8",
    "enable-prefix-caching": True,
    "compilation-config": {
        "mode": 3,
        "cudagraph_mode": "FULL_AND_PIECEWISE",
        "max_cudagraph_capture_size": 44,
        "custom_ops": ["+fused_rms_norm_gated"],
        "cudagraph_capture_sizes": list(range(1, 45)),
    },
    "kv-transfer-config": {
        "kv_connector": "SimpleCPUOffloadConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {
            "cpu_bytes_to_use_per_rank": 187_375_000_000,
            "lazy_offload": False,
        },
    },
    "speculative-config": {
        "model": "...",
        "num_speculative_tokens": 2,
        "method": "dspark",
        "attention_backend": "TRITON_MLA",
        "kv_cache_dtype": "auto",
        "draft_sample_method": "probabilistic",
        "rejection_sample_method": "synthetic",
        "synthetic_acceptance_length": 2.51,
    },
    "master-addr": "...",
    "master-port": "29500",
    "nnodes": "2",
    "disable-custom-all-reduce": True,
    "no-async-scheduling": True,
}
"""Flags of both ranks; --node-rank, and rank 0's --host and --port or rank 1's --headless, apart."""

OF_RANK: list[dict[str, object]] = [
    {"node-rank": "0", "host": "0.0.0.0", "port": "8888"},
    {"node-rank": "1", "headless": True},
]

DIFFERENCES = {
    "--pull": "image",
    "--name": "marks",
    "--user": "user",
    "--workdir": "working folder",
    "mount /draft": "mounts",
    "mount /patches": "mounts",
    "mount /cache": "mounts",
    "mount /workspace": "mounts",
    "mount /hf_cache": "hub",
    "mount /logs/agentic": "mounts",
    "IBDEVICES": "`NCCL_IB_HCA`",
    "HF_HOME": "hub",
    "HUGGINGFACE_HUB_CACHE": "hub",
    "HF_HUB_OFFLINE": "hub",
    "TRANSFORMERS_OFFLINE": "hub",
    "VLLM_NO_USAGE_STATS": "hub",
    "DO_NOT_TRACK": "hub",
    "AITER_CONFIG_GEMM_BF16": "tuned GEMM rows (`k3-tuned-gemm`), `AITER_CONFIG_GEMM_BF16`",
    "HSA_NO_SCRATCH_RECLAIM": "`HSA_NO_SCRATCH_RECLAIM`",
    "SERVE_REPRO_RUN_ID": "marks",
    "SERVE_REPRO_RANK": "marks",
    "SERVE_REPRO_PATCH_SET": "marks",
    "SERVE_REPRO_ATTESTATIONS": "marks",
    **dict.fromkeys(
        ("TMPDIR", "VLLM_CACHE_ROOT", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR"),
        "`TMPDIR`, `VLLM_CACHE_ROOT`, `TRITON_CACHE_DIR`, `TORCHINDUCTOR_CACHE_DIR`",
    ),
    "HOME": "user",
    "USER": "user",
    "LOGNAME": "user",
    "VLLM_HOST_IP": "`VLLM_HOST_IP`",
    "master-port": "ports",
    "port": "ports",
}
"""Each name in which the plan differs, and the row of docs/differences.md that gives the reason."""

LAUNCH = "..."


def plain(value: str) -> object:
    """A flag's value: JSON as data."""
    return json.loads(value) if value.startswith("{") else value
