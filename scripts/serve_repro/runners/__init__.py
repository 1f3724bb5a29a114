"""How a rank's command reaches its node. Each runner renders words; none of them starts anything."""

from serve_repro.runners import local, srun

RUNNERS = {"local": local.wrap, "srun": srun.wrap}
