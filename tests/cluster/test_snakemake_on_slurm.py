"""Snakemake's Slurm plugin, run outside of the nodes, drives a rule over both of them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from slurm_cluster import SlurmCluster

DEMO = Path(__file__).with_name("snakemake_demo")


@pytest.mark.nightly  # the points of tests/slurm show the same, and more
@pytest.mark.cluster
def test_rule_reaches_both_nodes_and_all_gpus(state: Path, tmp_path: Path) -> None:
    if find_spec("snakemake_executor_plugin_slurm") is None:
        pytest.skip("snakemake-executor-plugin-slurm is not installed beside this Python")
    work = tmp_path / "work"
    shutil.copytree(DEMO, work)
    with SlurmCluster(state, nodes=2, gpus=8) as cluster:
        done = subprocess.run(
            [sys.executable, "-m", "snakemake", "--profile", "slurm"],
            cwd=work,
            env=cluster.client_environment(),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        log = work / "nodes.log"
        text = done.stderr + (log.read_text() if log.exists() else "")
        assert done.returncode == 0, text
        expected = [f"{node} 0,1,2,3,4,5,6,7" for node in ("node1", "node2")]
        assert (work / "nodes.txt").read_text().splitlines() == expected
