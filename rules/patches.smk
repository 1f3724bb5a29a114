"""Build the recipe's patch set, and check it against the software on every node that serves.

INPUT   patches/series.yaml, patches/hooks/, others' files by address and hash, the image
OUTPUT  results/<recipe>/patches/set.json            ids, hashes; hooks/ and sources/ beside it
        results/<recipe>/patches/originals.json      what was taken from the image; originals/ beside it
        results/<recipe>/patches/gemm/               merged tuned GEMM table, and a report of every row
        results/<recipe>/patches/overlay.json        files before and after; overlay/ beside it
        results/<recipe>/patches/nodes/<node>.json   receipt: every target and file is the expected one
"""


rule build_patches:
    """Fetch and copy the recipe's patches into one folder that ranks can read."""
    output:
        "results/{recipe}/patches/set.json",
    log:
        "logs/{recipe}/build_patches.log",
    localrule: True
    conda:
        "../envs/workflow/conda.yaml"
    params:
        ids=lambda wildcards: json.dumps(
            [p.id for p in SWEEP.patches(wildcards.recipe)]
        ),
        mirror=SWEEP.patch_source()[0],
        offline=SWEEP.patch_source()[1],
        set_id=lambda wildcards: SWEEP.patch_set_id(wildcards.recipe),
    shell:
        r"""
        python scripts/build_patches.py \
            --ids {params.ids:q} \
            --mirror {params.mirror:q} \
            --offline {params.offline:q} \
            --output {output:q} \
            --log {log:q}
        """


rule take_originals:
    """Take the files that the patches start from out of the image, on the first node."""
    input:
        patch_set="results/{recipe}/patches/set.json",
        image=first_image,
    output:
        "results/{recipe}/patches/originals.json",
    log:
        "logs/{recipe}/take_originals.log",
    conda:
        "../envs/workflow/conda.yaml"
    resources:
        mem_mb=for_first_node("mem_mb"),
        nodes=for_first_node("nodes"),
        runtime=for_first_node("runtime"),
        slurm_account=for_first_node("slurm_account"),
        slurm_extra=for_first_node("slurm_extra"),
        slurm_partition=for_first_node("slurm_partition"),
        tasks=for_first_node("tasks"),
    params:
        engine=json.dumps(SWEEP.engine()),
        node=first_node,
    shell:
        r"""
        python scripts/take_originals.py \
            --patch-set {input.patch_set:q} \
            --image {input.image:q} \
            --engine {params.engine:q} \
            --node {params.node:q} \
            --output {output:q} \
            --log {log:q}
        """


rule merge_gemm_configs:
    """Lay the recipe's tuned GEMM rows over the image's own."""
    input:
        script=SCRIPTS / "merge_gemm_configs.py",
        patch_set="results/{recipe}/patches/set.json",
        originals="results/{recipe}/patches/originals.json",
    output:
        table="results/{recipe}/patches/gemm/bf16_tuned_gemm.csv",
        report="results/{recipe}/patches/gemm/report.json",
    log:
        "logs/{recipe}/merge_gemm_configs.log",
    localrule: True
    conda:
        "../envs/workflow/conda.yaml"
    params:
        base=lambda wildcards: f"results/{wildcards.recipe}/patches/originals/aiter/configs",
        extra=lambda wildcards: [
            f"results/{wildcards.recipe}/patches/sources/{name}"
            for name in SWEEP.tables(wildcards.recipe)
        ],
        gpu=lambda wildcards: SWEEP.tuned_gpu(wildcards.recipe),
    shell:
        r"""
        python scripts/merge_gemm_configs.py \
            --base {params.base:q} \
            --extra {params.extra:q} \
            --gpu {params.gpu:q} \
            --output {output.table:q} \
            --report {output.report:q} \
            --log {log:q}
        """


rule build_overlay:
    """Apply others' patches, exactly, to the image's files."""
    input:
        originals=originals,
        patch_set="results/{recipe}/patches/set.json",
        table=merged_table,
    output:
        "results/{recipe}/patches/overlay.json",
    log:
        "logs/{recipe}/build_overlay.log",
    localrule: True
    conda:
        "../envs/workflow/conda.yaml"
    shell:
        r"""
        python scripts/build_overlay.py \
            --patch-set {input.patch_set:q} \
            --originals {input.originals:q} \
            --output {output:q} \
            --log {log:q}
        """


rule check_patches:
    """Check on one node that every patch meets the source it was written for."""
    input:
        image="results/{recipe}/image/nodes/{node}.json",
        overlay="results/{recipe}/patches/overlay.json",
        patch_set="results/{recipe}/patches/set.json",
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
            --overlay {input.overlay:q} \
            --image {input.image:q} \
            --engine {params.engine:q} \
            --node {wildcards.node} \
            --output {output:q} \
            --log {log:q}
        """
