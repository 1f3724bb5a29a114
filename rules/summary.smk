"""Read the points into a table, a plot and a page. An edit of these programs reruns them, cheaply.

OUTPUT  results/summary.csv
        results/verdict.csv
        results/plots/throughput_against_interactivity.{svg,png}
        results/report.html
"""


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
    """Draw throughput per accelerator against interactivity."""
    input:
        summary="results/summary.csv",
        program=program_files("plot.py"),
    output:
        svg="results/plots/throughput_against_interactivity.svg",
        png="results/plots/throughput_against_interactivity.png",
    log:
        "logs/plot.log",
    localrule: True
    conda:
        "../envs/workflow/conda.yaml"
    shell:
        r"""
        python scripts/plot.py \
            --summary {input.summary:q} \
            --outputs {output.svg:q} {output.png:q} \
            --log {log:q}
        """


rule report:
    """Write one self-contained page with table, plot and gates."""
    input:
        summary="results/summary.csv",
        verdict="results/verdict.csv",
        published=SWEEP.published(),
        plot="results/plots/throughput_against_interactivity.svg",
        replays=SWEEP.points(),
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
            --plot {input.plot:q} \
            --replays {input.replays:q} \
            --output {output:q} \
            --log {log:q}
        """
