"""Measure the points: one job each boots the server, replays the traces, judges and stops.

OUTPUT  results/<recipe>/conc<N>/replay.json          a valid point; its evidence is in attempts/ beside it
        results/<recipe>/conc<N>/rep<k>/replay.json   the same of its further repeats, k from 2

What makes a point stale is this short list: plan, weights, image, patch set, traces, client, and the
declared version of the driving code. An edit of the driving code alone does not.
"""


rule replay:
    """Boot the server, replay the traces at one concurrency, judge the result."""
    input:
        plan="results/{recipe}/conc{concurrency}/plan.json",
        weights=per_node("results/{recipe}/weights/nodes/{node}.json"),
        image=per_node("results/{recipe}/image/nodes/{node}.json"),
        patch_set="results/{recipe}/patches/set.json",
        patches=per_node("results/{recipe}/patches/nodes/{node}.json"),
        dataset=dataset_manifest,
        client=".envs/client/environment.json",
    output:
        ensure("results/{recipe}/conc{concurrency}{repeat}/replay.json", non_empty=True),
    log:
        "logs/{recipe}/replay/conc{concurrency}{repeat}.log",
    benchmark:
        "logs/{recipe}/replay/conc{concurrency}{repeat}.jsonl"
    conda:
        "../envs/workflow/conda.yaml"
    resources:
        serving=1,
        cpus_per_task=for_point("cpus_per_task"),
        gres=for_point("gres"),
        mem_mb=for_point("mem_mb"),
        mpi=for_point("mpi"),
        nodes=for_point("nodes"),
        runtime=for_point("runtime"),
        slurm_account=for_point("slurm_account"),
        slurm_extra=for_point("slurm_extra"),
        slurm_partition=for_point("slurm_partition"),
        tasks=for_point("tasks"),
        tasks_per_gpu=for_point("tasks_per_gpu"),
    params:
        driver=DRIVER_VERSION,
    shell:
        r"""
        python scripts/replay.py \
            --plan {input.plan:q} \
            --weights {input.weights:q} \
            --image {input.image:q} \
            --patch-set {input.patch_set:q} \
            --patches {input.patches:q} \
            --dataset {input.dataset:q} \
            --client {input.client:q} \
            --summary results/summary.csv \
            --output {output:q} \
            --log {log:q}
        """
