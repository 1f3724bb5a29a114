from snakemake.utils import min_version

min_version("9.27")


configfile: "config/config.yaml"


include: "rules/common.smk"
include: "rules/plan.smk"


if SWEEP.site.nodes is None:

    include: "rules/nodes.smk"


include: "rules/environments.smk"
include: "rules/weights.smk"
include: "rules/image.smk"
include: "rules/patches.smk"
include: "rules/dataset.smk"
include: "rules/replay.smk"
include: "rules/reuse.smk"
include: "rules/evals.smk"
include: "rules/summary.smk"


rule all:
    """The summary with its plots, report and provenance, and every point."""
    default_target: True
    input:
        "results/summary.csv",
        "results/verdict.csv",
        "results/plots/throughput_against_interactivity.png",
        "results/plots/by_concurrency.png",
        "results/report.html",
        "results/ro-crate-metadata.json",
        SWEEP.points(),
        [aggregate_of(point) for point in SWEEP.points()],
        EVALS_TABLE,
    localrule: True


onsuccess:
    write_partial(SWEEP.points())
    print(made_what(SWEEP.points(), SWEEP.evals()))


onerror:
    let_launchers_end(SWEEP.points() + SWEEP.evals())
    write_partial(SWEEP.points())
    print(what_failed(SWEEP.points(), SWEEP.evals()))
