"""The `cluster` marker, and a short-named state directory for each cluster."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from devslurm import SlurmCluster
from slurm_required import require_slurm


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, so that `-m cluster` and --strict-markers work."""
    config.addinivalue_line("markers", "cluster: starts a real Slurm cluster on this machine")


@pytest.fixture(scope="session")
def slurm() -> None:
    """For tests that start a cluster."""
    require_slurm()


def cgroup_parts() -> set[Path]:
    """The clusters' parts of the cgroup hierarchies."""
    return set(Path("/sys/fs/cgroup").glob("*/devslurm-*"))


@pytest.fixture
def state(slurm: None) -> Iterator[Path]:
    """Return a new state directory; pytest's own paths are too long for Unix sockets."""
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))
    of_others = cgroup_parts()
    yield folder
    left = cgroup_parts() - of_others
    # A failed test may have left a cluster, which is lost when its directory is.
    SlurmCluster(folder).down()
    shutil.rmtree(folder)
    assert not left
