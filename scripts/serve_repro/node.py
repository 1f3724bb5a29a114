"""Which node this is: what proves a node must have run on it."""

from __future__ import annotations

import socket

from serve_repro.errors import UserError

HERE = "localhost"
"""The name that sites without a cluster give to the launcher's own machine."""


def require_here(node: str) -> None:
    """Refuse to prove a node from another one.

    Raises:
        UserError: this process runs somewhere else.
    """
    host = socket.gethostname()
    if node != HERE and node.split(".")[0] != host.split(".")[0]:
        raise UserError(
            "this program proves the node that it runs on, and runs on another",
            where=f"node {node}",
            expected=node,
            found=host,
            remedy="let Slurm place it: snakemake --profile slurm ...",
        )
