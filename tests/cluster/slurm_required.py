"""Skip a test, or fail it, where this machine cannot run a Slurm cluster."""

from __future__ import annotations

import os

import pytest

from devslurm import ClusterError, hosts, packages


def require_slurm(accounting: bool = False) -> None:
    """Skip aloud where no cluster can run; fail instead with SERVE_REPRO_REQUIRE_SLURM=1."""
    try:
        hosts.require_privileges()
        packages.require(accounting)
    except ClusterError as error:
        if os.environ.get("SERVE_REPRO_REQUIRE_SLURM") == "1":
            pytest.fail(f"SERVE_REPRO_REQUIRE_SLURM=1, but: {error}", pytrace=False)
        pytest.skip(f"no Slurm cluster: {error}")
