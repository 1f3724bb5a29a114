"""Free TCP ports on this machine's loopback addresses."""

from __future__ import annotations

import random
import socket

from devslurm.errors import ClusterError
from devslurm.spec import Ports

# Below the kernel's ephemeral range (from 32768), so that no outgoing connection takes a port
# between this choice and the daemon's own bind.
_FIRST, _LAST = 20000, 31999


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            # Every address, because slurmd listens on every address.
            probe.bind(("0.0.0.0", port))
        except OSError:
            return False
    return True


def choose_ports(nodes: int) -> Ports:
    """Return ports for the controller, the database daemon and each node.

    They are drawn at random, so two clusters that start at once do not try the same ones.
    """
    wanted = nodes + 2
    found: list[int] = []
    for port in random.sample(range(_FIRST, _LAST + 1), 50 * wanted):
        if _is_free(port):
            found.append(port)
        if len(found) == wanted:
            return Ports(found[0], found[1], tuple(found[2:]))
    raise ClusterError(f"fewer than {wanted} free TCP ports found from {_FIRST} to {_LAST}")
