"""Read the points into a table, a plot and a page. An edit of these programs reruns them, cheaply.

OUTPUT  results/summary.csv
        results/verdict.csv
        results/plots/throughput_against_interactivity.{svg,png}
        results/plots/by_concurrency.{svg,png}
        results/plots/<recipe>/conc<N>.svg   one point through its window
        results/<recipe>/conc<N>/inferencex.json   one point as InferenceX's aggregate
        results/report.html
        results/ro-crate-metadata.json       where every row comes from
"""

OUTSIDE = {
    done: [*proofs_elsewhere(done), *documents_of(done)]
    for done in [*SWEEP.points(), *SWEEP.evals()]
}
OUTSIDE_PROOFS = sorted({path for done in OUTSIDE for path in proofs_elsewhere(done)})


rule summarise:
    """Gather the points into one table, a row a point and repeat."""
    input:
        replays=SWEEP.points(),
        program=program_files("summarise.py"),
    output:
        "results/summary.csv",
    log:
        "logs/summarise.log",
    localrule: True
    conda:
        "../envs/workflow/conda.yaml"
    shell:
        r"""
        python scripts/summarise.py \
            --replays {input.replays:q} \
            --output {output:q} \
            --log {log:q}
        """


rule verdict:
    """Hold the summary against the published values."""
    input:
        summary="results/summary.csv",
        published=SWEEP.published(),
        program=program_files("verdict.py"),
    output:
        "results/verdict.csv",
    log:
        "logs/verdict.log",
    localrule: True
    conda:
        "../envs/workflow/conda.yaml"
    params:
        repeats=SWEEP.settings.repeats,
    shell:
        r"""
        python scripts/verdict.py \
            --summary {input.summary:q} \
            --published {input.published:q} \
            --repeats {params.repeats} \
            --output {output:q} \
            --log {log:q}
        """


rule plot:
    """Draw throughput against interactivity, or latency and throughput by concurrency."""
    input:
        summary="results/summary.csv",
        published=SWEEP.published(),
        program=program_files("plot.py"),
    output:
        multiext("results/plots/{picture}", ".svg", ".png"),
    log:
        "logs/plot/{picture}.log",
    wildcard_constraints:
        picture="throughput_against_interactivity|by_concurrency",
    localrule: True
    conda:
        "../envs/workflow/conda.yaml"
    shell:
        r"""
        python scripts/plot.py \
            --picture {wildcards.picture} \
            --summary {input.summary:q} \
            --published {input.published:q} \
            --outputs {output:q} \
            --log {log:q}
        """


rule plot_point:
    """Draw one point's throughput, requests, KV cache and cache hits through its window."""
    input:
        replay="results/{recipe}/conc{concurrency}{repeat}/replay.json",
        program=program_files("plot_point.py"),
    output:
        "results/plots/{recipe}/conc{concurrency}{repeat}.svg",
    log:
        "logs/{recipe}/plot_point/conc{concurrency}{repeat}.log",
    localrule: True
    conda:
        "../envs/workflow/conda.yaml"
    shell:
        r"""
        python scripts/plot_point.py \
            --replay {input.replay:q} \
            --output {output:q} \
            --log {log:q}
        """


rule export_inferencex:
    """Write one point as InferenceX's aggregate, for its dashboards."""
    input:
        replay="results/{recipe}/conc{concurrency}{repeat}/replay.json",
        program=program_files("export_inferencex.py"),
    output:
        "results/{recipe}/conc{concurrency}{repeat}/inferencex.json",
    log:
        "logs/{recipe}/export_inferencex/conc{concurrency}{repeat}.log",
    localrule: True
    conda:
        "../envs/workflow/conda.yaml"
    params:
        labels=inferencex_labels,
    shell:
        r"""
        python scripts/export_inferencex.py \
            --replay {input.replay:q} \
            --labels {params.labels:q} \
            --output {output:q} \
            --log {log:q}
        """


rule report:
    """Write one self-contained page: verdict, table, plots, gates."""
    input:
        summary="results/summary.csv",
        verdict="results/verdict.csv",
        published=SWEEP.published(),
        plots=[
            "results/plots/throughput_against_interactivity.svg",
            "results/plots/by_concurrency.svg",
        ],
        replays=SWEEP.points(),
        courses=[course_of(point) for point in SWEEP.points()],
        evals=EVALS_TABLE,
        evaluations=SWEEP.evals(),
        template="scripts/serve_repro/table/report.html.j2",
        program=program_files("report.py"),
    output:
        "results/report.html",
    log:
        "logs/report.log",
    localrule: True
    conda:
        "../envs/workflow/conda.yaml"
    shell:
        r"""
        python scripts/report.py \
            --summary {input.summary:q} \
            --verdict {input.verdict:q} \
            --published {input.published:q} \
            --plots {input.plots:q} \
            --replays {input.replays:q} \
            --courses {input.courses:q} \
            --evals {input.evals:q} \
            --evaluations {input.evaluations:q} \
            --output {output:q} \
            --log {log:q}
        """


rule record_provenance:
    """Record which run made which file from which others, as an RO-Crate of the results folder."""
    input:
        replays=SWEEP.points(),
        evaluations=SWEEP.evals(),
        evals=EVALS_TABLE,
        outside=OUTSIDE_PROOFS,
        made=[
            "results/summary.csv",
            "results/verdict.csv",
            "results/plots/throughput_against_interactivity.svg",
            "results/plots/by_concurrency.svg",
            "results/report.html",
            *[aggregate_of(point) for point in SWEEP.points()],
        ],
        program=program_files("record_provenance.py"),
    output:
        "results/ro-crate-metadata.json",
    log:
        "logs/record_provenance.log",
    localrule: True
    conda:
        "../envs/workflow/conda.yaml"
    params:
        outside=json.dumps(OUTSIDE),
    shell:
        r"""
        python scripts/record_provenance.py \
            --replays {input.replays:q} \
            --evaluations {input.evaluations:q} \
            --evals {input.evals:q} \
            --outside {params.outside:q} \
            --made {input.made:q} \
            --output {output:q} \
            --log {log:q}
        """
