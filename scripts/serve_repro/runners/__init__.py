"""How a rank's command reaches its node: the words that stand before it."""

from serve_repro.runners import local, srun

RUNNERS = {"local": local.PREFIX, "srun": srun.PREFIX}
