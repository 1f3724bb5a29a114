"""A Slurm cluster for development and tests: several nodes on one machine, no systemd."""

from devslurm.cluster import SlurmCluster
from devslurm.errors import ClusterError
from devslurm.spec import ClusterSpec

__all__ = ["ClusterError", "ClusterSpec", "SlurmCluster"]
