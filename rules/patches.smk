"""Build the recipe's patch set, and check it against the software on every node that serves.

INPUT   patches/series.yaml, patches/hooks/
OUTPUT  results/<recipe>/patches/set.json            ids, hashes, and hooks/ beside it
        results/<recipe>/patches/nodes/<node>.json   receipt: every target has the expected source
"""


rule build_patches:
    """Build the recipe's patch set into one folder that ranks can read."""
    output:
        "results/{recipe}/patches/set.json",
    log:
        "logs/{recipe}/build_patches.log",
    localrule: True
    conda:
        "../envs/workflow/conda.yaml"
    params:
        ids=lambda wildcards: json.dumps(SWEEP.recipes[wildcards.recipe].patches),
        set_id=lambda wildcards: SWEEP.patch_set_id(wildcards.recipe),
    shell:
        r"""
        python scripts/build_patches.py \
            --ids {params.ids:q} \
            --output {output:q} \
            --log {log:q}
        """


rule check_patches:
    """Check on one node that every patch meets the source it was written for."""
    input:
        patch_set="results/{recipe}/patches/set.json",
        image="results/{recipe}/image/nodes/{node}.json",
    output:
        "results/{recipe}/patches/nodes/{node}.json",
    log:
        "logs/{recipe}/check_patches/{node}.log",
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
        python scripts/check_patches.py \
            --patch-set {input.patch_set:q} \
            --image {input.image:q} \
            --engine {params.engine:q} \
            --node {wildcards.node} \
            --output {output:q} \
            --log {log:q}
        """
