"""Take finished points of another checkout (setting `reuse`) where nothing that counts differs.

OUTPUT  results/<recipe>/conc<N>/replay.json, of further repeats conc<N>/rep<k>/replay.json
        reused.json and attempts/ beside it, copied

The Snakefile decides before the graph is made which points these are, so that -n shows them and no
node is asked for. Where a proof is not made yet, the job compares it, and fails if it differs.
"""


ruleorder: reuse_point > replay


rule reuse_point:
    """Take one point of another checkout, with its evidence, if all identities are equal."""
    input:
        plan=lambda wildcards: plan_of(wildcards.point),
        weights=lambda wildcards: proofs_without_nodes(recipe_of(wildcards.point))[
            "weights"
        ],
        image=lambda wildcards: proofs_without_nodes(recipe_of(wildcards.point))[
            "image"
        ],
        patch_set=lambda wildcards: f"results/{recipe_of(wildcards.point)}/patches/set.json",
        dataset=lambda wildcards: traces_of(recipe_of(wildcards.point)),
        client=".envs/client/environment.json",
    output:
        ensure("results/{point}/replay.json", non_empty=True),
    log:
        "logs/reuse_point/{point}.log",
    wildcard_constraints:
        point=REUSED_POINTS,
    localrule: True
    conda:
        "../envs/workflow/conda.yaml"
    resources:
        # No parameter: what was taken stays when the other checkout is no longer named.
        reuse=REUSED_FROM,
    params:
        declared=lambda wildcards: SWEEP.declared(recipe_of(wildcards.point)),
    shell:
        r"""
        python scripts/reuse_point.py \
            --plan {input.plan:q} \
            --weights {input.weights:q} \
            --image {input.image:q} \
            --patch-set {input.patch_set:q} \
            --dataset {input.dataset:q} \
            --client {input.client:q} \
            --declared {params.declared:q} \
            --reuse {resources.reuse:q} \
            --summary results/summary.csv \
            --output {output:q} \
            --log {log:q}
        """
