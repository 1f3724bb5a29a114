"""Plan every point.

OUTPUT  results/<recipe>/conc<N>/plan.json

What decides whether a plan is stale is its own content: the Snakefile computes it on every call
and hands its hash to the rule. A comment in a recipe, or a change of code that plans the same,
touches nothing.
"""


rule plan:
    """Write the exact commands, environments and numbers of one point."""
    output:
        "results/{recipe}/conc{concurrency}/plan.json",
    log:
        "logs/{recipe}/plan/conc{concurrency}.log",
    localrule: True
    conda:
        "../envs/workflow/conda.yaml"
    params:
        digest=lambda wildcards: SWEEP.plan_digest(
            wildcards.recipe, wildcards.concurrency
        ),
        changes=lambda wildcards: json.dumps(SWEEP.changes(wildcards.recipe)),
        site=SWEEP.site.name,
    shell:
        r"""
        python scripts/plan.py \
            --recipe config/recipes/{wildcards.recipe}.yaml \
            --changes {params.changes:q} \
            --site config/sites/{params.site:q}.yaml \
            --concurrency {wildcards.concurrency} \
            --output {output:q} \
            --log {log:q}
        """
