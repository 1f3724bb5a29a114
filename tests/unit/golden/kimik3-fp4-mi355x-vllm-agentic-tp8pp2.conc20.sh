# kimik3-fp4-mi355x-vllm-agentic-tp8pp2 at concurrency 20, site mi355x-amds
# 16 x mi355x, TP8 x PP2, 2 rank(s), docker on srun, submission run
# nodes: mia1-p01-g06 mia1-p02-g17
# KV offload: 187,375,000,000 bytes a GPU rank (1499 GB a node)
# patch: k3-container-patches
# patch: vllm-50514-01
# patch: vllm-50514-02
# patch: vllm-50514-03
# patch: vllm-50514-04
# patch: k3-draft-loading
# patch: vllm-50514-apply
# patch: k3-tuned-gemm
# patch: k3-triton
# patch: kv-offload-block-cap
# patch: aiter-n6288-split
# patch: aiter-flush-sync
# note: max-num-seqs 20 x 3 rows = 60 is above the largest captured graph (44): full batches run without one
# note: the site runs containers with --privileged

# Filled in by the launch; set them to run this by hand:
RUN_ID=  # name of this attempt; it marks each process and container that belongs to it
NODE=  # this rank's node: node r of the allocation
RUN_DIR=  # folder of this attempt
RANK_DIR=  # folder of one rank in it
SCRATCH=  # short-lived folder on the node, removed at the end
CACHE_DIR=  # folder of compiled code: this attempt's, or the site's for this image and patch set
WEIGHTS_MOUNT=  # folder with the model's verified weights, links' targets included
WEIGHTS_PATH=  # their place in it, /snapshots/<revision> in hub layout; nothing otherwise
DRAFT_MOUNT=  # the same for the draft model's weights
DRAFT_PATH=  # and their place in it
IMAGE_DIGEST=  # digest that the image was resolved to
USER_IDS=  # user and group that start the rank, as numbers
CLIENT_PYTHON=  # Python of the client's environment
PATCH_DIR=  # folder of the built patch set
OVERLAY_MOUNTS=  # the words that mount patched files over the image's own, any number of them
HUB_DIR=  # the client's offline hub cache: links to the tokenizer and to fetched traces
MASTER_ADDR=  # address of rank 0, as its peers reach it
MASTER_PORT=  # free port on rank 0's node, for the rendezvous
API_PORT=  # free port on rank 0's node, for the API
HOST_ADDR=  # this rank's own address, on the route to its peers
HOST_NAME=  # this rank's host name
INTERFACE=  # network interface of HOST_ADDR

# rank 1 (headless)
srun \
  --overlap \
  --nodes=1 \
  --ntasks=1 \
  "--nodelist=${NODE}" \
  --kill-on-bad-exit=1 \
  docker run \
  --rm \
  --init \
  --name "serve-repro-kimik3-fp4-mi355x-vllm-agentic-tp8pp2-conc20-${RUN_ID}-r1" \
  --pull never \
  --user "${USER_IDS}" \
  --network host \
  --ipc host \
  --shm-size 128G \
  --device /dev/dri \
  --device /dev/kfd \
  --device /dev/infiniband \
  --group-add video \
  --ulimit memlock=-1 \
  --ulimit stack=67108864 \
  --cap-add SYS_PTRACE \
  --security-opt seccomp=unconfined \
  --privileged \
  --add-host "${HOST_NAME}:${HOST_ADDR}" \
  --mount "type=bind,source=${WEIGHTS_MOUNT},target=/model,readonly" \
  --mount "type=bind,source=${DRAFT_MOUNT},target=/draft,readonly" \
  --mount "type=bind,source=${PATCH_DIR},target=/patches,readonly" \
  --mount "type=bind,source=${RANK_DIR},target=/results" \
  --mount "type=bind,source=${CACHE_DIR},target=/cache" \
  --mount "type=bind,source=${SCRATCH},target=/tmp" \
  --mount type=bind,source=/sys,target=/sys ${OVERLAY_MOUNTS} \
  --env HOME=/tmp \
  --env USER=serve-repro \
  --env LOGNAME=serve-repro \
  --env HF_HUB_OFFLINE=1 \
  --env TRANSFORMERS_OFFLINE=1 \
  --env VLLM_NO_USAGE_STATS=1 \
  --env DO_NOT_TRACK=1 \
  --env PYTHONNOUSERSITE=1 \
  --env "SERVE_REPRO_RUN_ID=${RUN_ID}" \
  --env SERVE_REPRO_RANK=1 \
  --env TMPDIR=/tmp \
  --env VLLM_CACHE_ROOT=/cache/vllm \
  --env TRITON_CACHE_DIR=/cache/triton \
  --env TORCHINDUCTOR_CACHE_DIR=/cache/inductor \
  --env "VLLM_HOST_IP=${HOST_ADDR}" \
  --env "GLOO_SOCKET_IFNAME=${INTERFACE}" \
  --env "NCCL_SOCKET_IFNAME=${INTERFACE}" \
  --env PYTHONHASHSEED=42 \
  --env PYTHONPATH=/patches/hooks \
  --env SERVE_REPRO_PATCH_SET=/patches/set.json \
  --env SERVE_REPRO_ATTESTATIONS=/results/attestations.jsonl \
  --env AITER_CONFIG_GEMM_BF16=/patches/gemm/bf16_tuned_gemm.csv \
  --env NCCL_IB_HCA=rdma0,rdma1,rdma2,rdma3,rdma4,rdma5,rdma6,rdma7 \
  --env VLLM_ROCM_USE_AITER=1 \
  --env VLLM_ROCM_AITER_MLA_ASM_PADDING=asm \
  --env VLLM_ROCM_USE_AITER_MOE_SITUV2_A8W4=1 \
  --env AITER_BF16_FP8_MOE_BOUND=0 \
  --env SAFETENSORS_FAST_GPU=1 \
  --env VLLM_USE_BREAKABLE_CUDAGRAPH=0 \
  --env VLLM_ENGINE_READY_TIMEOUT_S=7200 \
  --env VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS=3600 \
  --workdir /results \
  --entrypoint bash "vllm/vllm-openai-rocm@${IMAGE_DIGEST}" \
  -c 'exec "$@"' bash vllm serve "/model${WEIGHTS_PATH}" \
  --served-model-name moonshotai/Kimi-K3 \
  --tensor-parallel-size 8 \
  --pipeline-parallel-size 2 \
  --max-model-len 1048576 \
  --trust-remote-code \
  --language-model-only \
  --moe-backend auto \
  --distributed-timeout-seconds 1800 \
  --load-format fastsafetensors \
  --gpu-memory-utilization 0.84 \
  --max-num-seqs 20 \
  --max-num-batched-tokens 8192 \
  --enable-auto-tool-choice \
  --tool-call-parser kimi_k3 \
  --reasoning-parser kimi_k3 \
  --kv-cache-dtype fp8 \
  --disable-custom-all-reduce \
  --enable-prefix-caching \
  --no-async-scheduling \
  --compilation-config '{"mode":3,"cudagraph_mode":"FULL_AND_PIECEWISE","max_cudagraph_capture_size":44,"custom_ops":["+fused_rms_norm_gated"],"cudagraph_capture_sizes":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31,32,33,34,35,36,37,38,39,40,41,42,43,44]}' \
  --kv-transfer-config '{"kv_connector":"SimpleCPUOffloadConnector","kv_role":"kv_both","kv_connector_extra_config":{"cpu_bytes_to_use_per_rank":187375000000,"lazy_offload":false}}' \
  --speculative-config "{\"model\":\"/draft${DRAFT_PATH}\",\"num_speculative_tokens\":2,\"method\":\"dspark\",\"attention_backend\":\"TRITON_MLA\",\"kv_cache_dtype\":\"auto\",\"draft_sample_method\":\"probabilistic\",\"rejection_sample_method\":\"synthetic\",\"synthetic_acceptance_length\":2.51}" \
  --nnodes 2 \
  --node-rank 1 \
  --master-addr "${MASTER_ADDR}" \
  --master-port "${MASTER_PORT}" \
  --headless

# rank 0 (api)
srun \
  --overlap \
  --nodes=1 \
  --ntasks=1 \
  "--nodelist=${NODE}" \
  --kill-on-bad-exit=1 \
  docker run \
  --rm \
  --init \
  --name "serve-repro-kimik3-fp4-mi355x-vllm-agentic-tp8pp2-conc20-${RUN_ID}-r0" \
  --pull never \
  --user "${USER_IDS}" \
  --network host \
  --ipc host \
  --shm-size 128G \
  --device /dev/dri \
  --device /dev/kfd \
  --device /dev/infiniband \
  --group-add video \
  --ulimit memlock=-1 \
  --ulimit stack=67108864 \
  --cap-add SYS_PTRACE \
  --security-opt seccomp=unconfined \
  --privileged \
  --add-host "${HOST_NAME}:${HOST_ADDR}" \
  --mount "type=bind,source=${WEIGHTS_MOUNT},target=/model,readonly" \
  --mount "type=bind,source=${DRAFT_MOUNT},target=/draft,readonly" \
  --mount "type=bind,source=${PATCH_DIR},target=/patches,readonly" \
  --mount "type=bind,source=${RANK_DIR},target=/results" \
  --mount "type=bind,source=${CACHE_DIR},target=/cache" \
  --mount "type=bind,source=${SCRATCH},target=/tmp" \
  --mount type=bind,source=/sys,target=/sys ${OVERLAY_MOUNTS} \
  --env HOME=/tmp \
  --env USER=serve-repro \
  --env LOGNAME=serve-repro \
  --env HF_HUB_OFFLINE=1 \
  --env TRANSFORMERS_OFFLINE=1 \
  --env VLLM_NO_USAGE_STATS=1 \
  --env DO_NOT_TRACK=1 \
  --env PYTHONNOUSERSITE=1 \
  --env "SERVE_REPRO_RUN_ID=${RUN_ID}" \
  --env SERVE_REPRO_RANK=0 \
  --env TMPDIR=/tmp \
  --env VLLM_CACHE_ROOT=/cache/vllm \
  --env TRITON_CACHE_DIR=/cache/triton \
  --env TORCHINDUCTOR_CACHE_DIR=/cache/inductor \
  --env "VLLM_HOST_IP=${HOST_ADDR}" \
  --env "GLOO_SOCKET_IFNAME=${INTERFACE}" \
  --env "NCCL_SOCKET_IFNAME=${INTERFACE}" \
  --env PYTHONHASHSEED=42 \
  --env PYTHONPATH=/patches/hooks \
  --env SERVE_REPRO_PATCH_SET=/patches/set.json \
  --env SERVE_REPRO_ATTESTATIONS=/results/attestations.jsonl \
  --env AITER_CONFIG_GEMM_BF16=/patches/gemm/bf16_tuned_gemm.csv \
  --env NCCL_IB_HCA=rdma0,rdma1,rdma2,rdma3,rdma4,rdma5,rdma6,rdma7 \
  --env VLLM_ROCM_USE_AITER=1 \
  --env VLLM_ROCM_AITER_MLA_ASM_PADDING=asm \
  --env VLLM_ROCM_USE_AITER_MOE_SITUV2_A8W4=1 \
  --env AITER_BF16_FP8_MOE_BOUND=0 \
  --env SAFETENSORS_FAST_GPU=1 \
  --env VLLM_USE_BREAKABLE_CUDAGRAPH=0 \
  --env VLLM_ENGINE_READY_TIMEOUT_S=7200 \
  --env VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS=3600 \
  --workdir /results \
  --entrypoint bash "vllm/vllm-openai-rocm@${IMAGE_DIGEST}" \
  -c 'exec "$@"' bash vllm serve "/model${WEIGHTS_PATH}" \
  --served-model-name moonshotai/Kimi-K3 \
  --tensor-parallel-size 8 \
  --pipeline-parallel-size 2 \
  --max-model-len 1048576 \
  --trust-remote-code \
  --language-model-only \
  --moe-backend auto \
  --distributed-timeout-seconds 1800 \
  --load-format fastsafetensors \
  --gpu-memory-utilization 0.84 \
  --max-num-seqs 20 \
  --max-num-batched-tokens 8192 \
  --enable-auto-tool-choice \
  --tool-call-parser kimi_k3 \
  --reasoning-parser kimi_k3 \
  --kv-cache-dtype fp8 \
  --disable-custom-all-reduce \
  --enable-prefix-caching \
  --no-async-scheduling \
  --compilation-config '{"mode":3,"cudagraph_mode":"FULL_AND_PIECEWISE","max_cudagraph_capture_size":44,"custom_ops":["+fused_rms_norm_gated"],"cudagraph_capture_sizes":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31,32,33,34,35,36,37,38,39,40,41,42,43,44]}' \
  --kv-transfer-config '{"kv_connector":"SimpleCPUOffloadConnector","kv_role":"kv_both","kv_connector_extra_config":{"cpu_bytes_to_use_per_rank":187375000000,"lazy_offload":false}}' \
  --speculative-config "{\"model\":\"/draft${DRAFT_PATH}\",\"num_speculative_tokens\":2,\"method\":\"dspark\",\"attention_backend\":\"TRITON_MLA\",\"kv_cache_dtype\":\"auto\",\"draft_sample_method\":\"probabilistic\",\"rejection_sample_method\":\"synthetic\",\"synthetic_acceptance_length\":2.51}" \
  --nnodes 2 \
  --node-rank 0 \
  --master-addr "${MASTER_ADDR}" \
  --master-port "${MASTER_PORT}" \
  --host 0.0.0.0 \
  --port "${API_PORT}"

# replay client, on rank 0's node, once a completion brings tokens
SERVE_REPRO_RUN_ID="${RUN_ID}" \
  SERVE_REPRO_RANK=client \
  HF_HUB_OFFLINE=1 \
  HF_HUB_CACHE="${HUB_DIR}" \
  TMPDIR="${SCRATCH}" \
  HOME="${SCRATCH}" \
  AIPERF_DATASET_MMAP_CACHE_DIR="${SCRATCH}/mmap" \
  AIPERF_DATASET_WEKA_LIVE_ASSISTANT_RESPONSES=0 \
  AIPERF_DATASET_CONFIGURATION_TIMEOUT=1800 \
  AIPERF_SERVICE_PROFILE_CONFIGURE_TIMEOUT=1800 \
  AIPERF_UI_REALTIME_METRICS_ENABLED=true \
  AIPERF_HTTP_TCP_USER_TIMEOUT=900000 \
  "${CLIENT_PYTHON}" \
  -m aiperf profile \
  --scenario inferencex-agentx-mvp \
  --url "http://127.0.0.1:${API_PORT}" \
  --endpoint /v1/chat/completions \
  --endpoint-type chat \
  --streaming \
  --model moonshotai/Kimi-K3 \
  --tokenizer moonshotai/Kimi-K3 \
  --tokenizer-trust-remote-code \
  --concurrency 20 \
  --benchmark-duration 1800 \
  --benchmark-grace-period 30 \
  --stats-interval 30 \
  --random-seed 42 \
  --failed-request-threshold 0.1 \
  --trajectory-start-min-ratio 0.25 \
  --trajectory-start-max-ratio 0.75 \
  --warmup-requests-per-lane 10 \
  --warmup-grace-period 1800 \
  --trace-idle-gap-cap-seconds 300 \
  --use-server-token-count \
  --no-gpu-telemetry \
  --server-metrics "http://127.0.0.1:${API_PORT}/metrics" \
  --num-dataset-entries 393 \
  --slice-duration 1.0 \
  --ui none \
  --output-artifact-dir "${RUN_DIR}/client/artifacts" \
  --public-dataset semianalysis_cc_traces_weka_062126

# clean-up of rank 0
srun \
  --overlap \
  --nodes=1 \
  --ntasks=1 \
  "--nodelist=${NODE}" \
  --kill-on-bad-exit=1 \
  docker rm \
  --force "serve-repro-kimik3-fp4-mi355x-vllm-agentic-tp8pp2-conc20-${RUN_ID}-r0"

# clean-up of rank 1
srun \
  --overlap \
  --nodes=1 \
  --ntasks=1 \
  "--nodelist=${NODE}" \
  --kill-on-bad-exit=1 \
  docker rm \
  --force "serve-repro-kimik3-fp4-mi355x-vllm-agentic-tp8pp2-conc20-${RUN_ID}-r1"
