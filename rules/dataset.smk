"""Have the traces: made from a seed, or fetched from their hub.

OUTPUT  resources/made/traces/<name>/manifest.json
        resources/hub/traces/<name>/manifest.json
"""


rule make_traces:
    """Make small traces in the published record format, from a seed."""
    output:
        "resources/made/traces/{dataset}/manifest.json",
    log:
        "logs/traces/{dataset}.log",
    localrule: True
    conda:
        "../envs/workflow/conda.yaml"
    params:
        numbers=lambda wildcards: json.dumps(SWEEP.made_traces()[wildcards.dataset]),
    shell:
        r"""
        python scripts/make_traces.py \
            --numbers {params.numbers:q} \
            --output {output:q} \
            --log {log:q}
        """


rule fetch_dataset:
    """Fetch published traces from their hub and list what came."""
    output:
        "resources/hub/traces/{dataset}/manifest.json",
    log:
        "logs/traces/{dataset}.log",
    localrule: True
    conda:
        "../envs/workflow/conda.yaml"
    params:
        source=lambda wildcards: json.dumps(SWEEP.hub_datasets()[wildcards.dataset]),
    shell:
        r"""
        python scripts/fetch_dataset.py \
            --source {params.source:q} \
            --output {output:q} \
            --log {log:q}
        """
