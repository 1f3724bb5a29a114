"""How accurate the answers are, on a server that only accepts drafts that are right.

OUTPUT  results/<recipe>/eval/<task>/plan.json
        results/<recipe>/eval/<task>/eval.json   a valid evaluation; its evidence is in attempts/ beside it
        results/evals.csv                        a row a recipe that has the section `eval`, below its threshold or not
        resources/{made,hub}/items/<name>/manifest.json

Nothing of it stands in the summary: a server for throughput may accept drafts at a set rate.
"""

EVALS_TABLE = ["results/evals.csv"] if SWEEP.evals() else []


rule plan_evaluation:
    """Write the exact commands, environments and numbers of one evaluation."""
    output:
        "results/{recipe}/eval/{task}/plan.json",
    log:
        "logs/{recipe}/plan_evaluation/{task}.log",
    localrule: True
    conda:
        "../envs/workflow/conda.yaml"
    params:
        changes=lambda wildcards: json.dumps(SWEEP.changes(wildcards.recipe)),
        digest=lambda wildcards: SWEEP.evaluation(wildcards.recipe).digest(),
        site=SWEEP.site.name,
    shell:
        r"""
        python scripts/plan_evaluation.py \
            --recipe config/recipes/{wildcards.recipe}.yaml \
            --changes {params.changes:q} \
            --site config/sites/{params.site:q}.yaml \
            --output {output:q} \
            --log {log:q}
        """


rule make_items:
    """Make questions with answers, from a seed."""
    output:
        "resources/made/items/{dataset}/manifest.json",
    log:
        "logs/items/{dataset}.log",
    localrule: True
    conda:
        "../envs/workflow/conda.yaml"
    params:
        numbers=lambda wildcards: json.dumps(SWEEP.item_sources()[wildcards.dataset]),
    shell:
        r"""
        python scripts/make_items.py \
            --numbers {params.numbers:q} \
            --output {output:q} \
            --log {log:q}
        """


rule fetch_items:
    """Fetch published questions from their hub and list what came."""
    output:
        "resources/hub/items/{dataset}/manifest.json",
    log:
        "logs/items/{dataset}.log",
    localrule: True
    conda:
        "../envs/workflow/conda.yaml"
    params:
        source=lambda wildcards: json.dumps(SWEEP.item_sources()[wildcards.dataset]),
    shell:
        r"""
        python scripts/fetch_dataset.py \
            --source {params.source:q} \
            --output {output:q} \
            --log {log:q}
        """


rule evaluate:
    """Boot a server of its own, ask every question, judge the answers."""
    input:
        plan="results/{recipe}/eval/{task}/plan.json",
        weights=per_node("results/{recipe}/weights/nodes/{node}.json"),
        image=per_node("results/{recipe}/image/nodes/{node}.json"),
        patch_set="results/{recipe}/patches/set.json",
        patches=per_node("results/{recipe}/patches/nodes/{node}.json"),
        dataset=lambda wildcards: SWEEP.items(wildcards.recipe),
        client=".envs/eval/environment.json",
    output:
        ensure("results/{recipe}/eval/{task}/eval.json", non_empty=True),
    log:
        "logs/{recipe}/evaluate/{task}.log",
    benchmark:
        "logs/{recipe}/evaluate/{task}.jsonl"
    conda:
        "../envs/workflow/conda.yaml"
    resources:
        serving=1,
        cpus_per_task=for_evaluation("cpus_per_task"),
        gres=for_evaluation("gres"),
        mem_mb=for_evaluation("mem_mb"),
        mpi=for_evaluation("mpi"),
        nodes=for_evaluation("nodes"),
        runtime=for_evaluation("runtime"),
        slurm_account=for_evaluation("slurm_account"),
        slurm_extra=for_evaluation("slurm_extra"),
        slurm_partition=for_evaluation("slurm_partition"),
        tasks=for_evaluation("tasks"),
        tasks_per_gpu=for_evaluation("tasks_per_gpu"),
    params:
        driver=DRIVER_VERSION,
    shell:
        r"""
        python scripts/evaluate.py \
            --plan {input.plan:q} \
            --weights {input.weights:q} \
            --image {input.image:q} \
            --patch-set {input.patch_set:q} \
            --patches {input.patches:q} \
            --dataset {input.dataset:q} \
            --client {input.client:q} \
            --evals results/evals.csv \
            --output {output:q} \
            --log {log:q}
        """


rule gather_evals:
    """Gather the evaluations into a table of their own."""
    input:
        evals=SWEEP.evals(),
        program=program_files("gather_evals.py"),
    output:
        "results/evals.csv",
    log:
        "logs/gather_evals.log",
    localrule: True
    conda:
        "../envs/workflow/conda.yaml"
    shell:
        r"""
        python scripts/gather_evals.py \
            --evals {input.evals:q} \
            --output {output:q} \
            --log {log:q}
        """
