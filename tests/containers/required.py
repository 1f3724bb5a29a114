"""Skip a test, or fail it, where this machine cannot run a container engine."""

from __future__ import annotations

import os
import shutil

import pytest

PROGRAMS = {
    "docker": ("docker", "dockerd", "containerd", "runc"),
    "podman": ("podman", "runc", "conmon"),
    "registry": ("skopeo", "docker-registry", "busybox"),
}


def require(name: str) -> None:
    """Skip aloud without a program; fail instead with SERVE_REPRO_REQUIRE_CONTAINERS=1."""
    missing = [program for program in PROGRAMS[name] if not shutil.which(program)]
    problem = f"not installed: {missing}" if missing else ""
    if os.geteuid() != 0:
        problem = "only root can run the engines of a test"
    if problem and os.environ.get("SERVE_REPRO_REQUIRE_CONTAINERS") == "1":
        pytest.fail(f"SERVE_REPRO_REQUIRE_CONTAINERS=1, but {name}: {problem}", pytrace=False)
    if problem:
        pytest.skip(f"no {name}: {problem}")
