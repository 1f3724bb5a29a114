"""Choose the nodes of a sweep, at a site that gives a partition instead of naming nodes.

OUTPUT  results/<recipe>/nodes.json   the nodes, and for each other node of the partition why not

It is included at such sites only: Snakemake then learns of the jobs on the nodes once they are chosen.
"""


checkpoint select_nodes:
    """Look at the partition's nodes and record which of them the whole sweep uses."""
    output:
        "results/{recipe}/nodes.json",
    log:
        "logs/{recipe}/select_nodes.log",
    localrule: True
    conda:
        "../envs/workflow/conda.yaml"
    resources:
        slurm_account=SWEEP.site.slurm.account or "",
    params:
        request=lambda wildcards: json.dumps(
            SWEEP.node_request(wildcards.recipe), sort_keys=True
        ),
        instead_of=lambda wildcards: SWEEP.instead_of(wildcards.recipe),
    shell:
        r"""
        python scripts/select_nodes.py \
            --request {params.request:q} \
            --account {resources.slurm_account:q} \
            --instead-of {params.instead_of:q} \
            --output {output:q} \
            --log {log:q}
        """
