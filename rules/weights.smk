"""Find the weights, list them with their hashes, and prove them on every node that serves.

OUTPUT  results/<recipe>/weights/manifest.json        every file with size and sha256
        results/<recipe>/weights/nodes/<node>.json    receipt: this node has exactly these bytes
        resources/made/models/<model>/                models that a recipe makes on the spot
"""


rule make_model:
    """Make a tiny random-weight model with tokenizer and chat template."""
    input:
        environment=".envs/serve-cpu/environment.json",
    output:
        "resources/made/models/{model}/config.json",
    log:
        "logs/models/{model}.log",
    localrule: True
    conda:
        "../envs/serve-cpu/conda.yaml"
    params:
        numbers=lambda wildcards: json.dumps(SWEEP.made_models()[wildcards.model]),
    shell:
        r"""
        .envs/serve-cpu/bin/python scripts/make_model.py \
            --numbers {params.numbers:q} \
            --output {output:q} \
            --log {log:q}
        """


rule resolve_weights:
    """Find the recipe's models under the site's roots and list every file with its hash."""
    input:
        made_model_files,
    output:
        "results/{recipe}/weights/manifest.json",
    log:
        "logs/{recipe}/resolve_weights.log",
    benchmark:
        "logs/{recipe}/resolve_weights.jsonl"
    localrule: True
    conda:
        "../envs/workflow/conda.yaml"
    params:
        sources=lambda wildcards: json.dumps(SWEEP.weight_sources(wildcards.recipe)),
        # Weight files are no inputs: they would be hashed on every call. Sizes and times of a
        # plain folder's make this step stale instead, and with it verification and points.
        seen=lambda wildcards: SWEEP.weights_seen(wildcards.recipe),
    shell:
        r"""
        python scripts/resolve_weights.py \
            --sources {params.sources:q} \
            --output {output:q} \
            --log {log:q}
        """


rule verify_weights:
    """Hash every weight file on one node and leave its receipt."""
    input:
        manifest="results/{recipe}/weights/manifest.json",
        shared=first_receipt,
    output:
        "results/{recipe}/weights/nodes/{node}.json",
    log:
        "logs/{recipe}/verify_weights/{node}.log",
    benchmark:
        "logs/{recipe}/verify_weights/{node}.jsonl"
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
    shell:
        r"""
        python scripts/verify_weights.py \
            --manifest {input.manifest:q} \
            --shared {input.shared:q} \
            --node {wildcards.node} \
            --output {output:q} \
            --log {log:q}
        """
