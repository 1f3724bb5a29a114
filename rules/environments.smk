"""Build the pinned Python environments that are not the workflow's own.

INPUT   envs/<name>/*.txt (complete locks)
OUTPUT  .envs/<name>/environment.json, a proof of what is installed beside it
"""


rule build_environment:
    """Build one pinned environment, or adopt one that is already exactly right."""
    output:
        ".envs/{environment}/environment.json",
    log:
        "logs/environments/{environment}.log",
    benchmark:
        "logs/environments/{environment}.jsonl"
    localrule: True
    conda:
        "../envs/workflow/conda.yaml"
    params:
        lock=lambda wildcards: SWEEP.lock_digest(wildcards.environment),
    shell:
        r"""
        python scripts/build_environment.py \
            --definition envs/{wildcards.environment} \
            --output {output:q} \
            --log {log:q}
        """
