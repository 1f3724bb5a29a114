"""Resolve what serves to one digest, and have exactly that on every node that serves.

OUTPUT  results/<recipe>/image/image.json          reference and digest
        results/<recipe>/image/nodes/<node>.json   receipt: this node has exactly this image
        results/<recipe>/image/nodes/<node>.history.jsonl   when, with which engine, after how many tries
"""


rule resolve_image:
    """Resolve the recipe's image, or its pinned environment, to a digest."""
    input:
        environment=environment_file,
    output:
        "results/{recipe}/image/image.json",
    log:
        "logs/{recipe}/resolve_image.log",
    localrule: True
    conda:
        "../envs/workflow/conda.yaml"
    params:
        image=lambda wildcards: SWEEP.image(wildcards.recipe),
        pin=lambda wildcards: SWEEP.pin(wildcards.recipe),
        reference=lambda wildcards: SWEEP.reference(wildcards.recipe),
        runtime=SWEEP.site.runtime,
    shell:
        r"""
        python scripts/resolve_image.py \
            --image {params.image:q} \
            --runtime {params.runtime:q} \
            --environment {input.environment:q} \
            --reference {params.reference:q} \
            --pin {params.pin:q} \
            --output {output:q} \
            --log {log:q}
        """


rule pull_image:
    """Have the resolved image on one node, and prove it."""
    input:
        image="results/{recipe}/image/image.json",
    output:
        "results/{recipe}/image/nodes/{node}.json",
    log:
        "logs/{recipe}/pull_image/{node}.log",
    benchmark:
        "logs/{recipe}/pull_image/{node}.jsonl"
    conda:
        "../envs/workflow/conda.yaml"
    resources:
        mem_mb=for_step("mem_mb"),
        nodes=for_step("nodes"),
        runtime=for_step("runtime"),
        slurm_account=for_step("slurm_account"),
        slurm_extra=for_step("slurm_extra"),
        slurm_partition=for_step("slurm_partition"),
        tasks=for_step("tasks"),
    params:
        engine=json.dumps(SWEEP.engine()),
    shell:
        r"""
        python scripts/pull_image.py \
            --image {input.image:q} \
            --engine {params.engine:q} \
            --node {wildcards.node} \
            --history results/{wildcards.recipe}/image/nodes/{wildcards.node}.history.jsonl \
            --output {output:q} \
            --log {log:q}
        """
