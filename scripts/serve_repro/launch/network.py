"""Addresses by route to the peer, free ports, and who holds a port that is taken."""

from __future__ import annotations

import errno
import random
import socket
from typing import TYPE_CHECKING

import psutil

from serve_repro.errors import UserError

if TYPE_CHECKING:  # the holders on the nodes start three times faster without the plan's types
    from serve_repro.plan.model import Ports


def address_towards(peer: str) -> tuple[str, str]:
    """(own address, interface) on the route to a peer; no packet is sent.

    The first address of the host is often the wrong one (a management net, a container bridge);
    the kernel's choice for the peer is the one that the peer can answer.

    Raises:
        UserError: the peer has no address, or there is no route to it.
    """
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((peer, 9))
            address: str = probe.getsockname()[0]
    except OSError as error:
        raise UserError(f"no route to this host ({error.strerror})", where=peer) from error
    for interface, entries in psutil.net_if_addrs().items():
        if any(entry.family == socket.AF_INET and entry.address == address for entry in entries):
            return address, interface
    # 127.0.0.0/8 is loopback's as a whole, though only 127.0.0.1 stands in its list.
    return address, "lo" if address.startswith("127.") else ""


def own_address(peer: str) -> tuple[str, str]:
    """This node's (address, interface) as its peer reaches it.

    Where both nodes' names lie in 127.0.0.0/8, they are simulated on one machine; its kernel then
    says 127.0.0.1 for every route, and the node's own name tells them apart.
    """
    address, interface = address_towards(peer)
    if address.startswith("127."):
        own = _loopback_of(socket.gethostname())
        if own is not None and own != address:
            return own, interface
    return address, interface


def _loopback_of(name: str) -> str | None:
    """The address of a name if it is a loopback one."""
    try:
        address = socket.gethostbyname(name)
    except OSError:
        return None
    return address if address.startswith("127.") else None


def choose_ports(ports: Ports, count: int) -> list[int]:
    """Free TCP ports of the site's range; the first is the site's own API port if it insists.

    Raises:
        UserError: the wanted port is taken (says by whom), or the range holds too few free ones.
    """
    chosen = []
    if ports.api is not None:
        if not is_free(ports.api):
            raise UserError(
                "the port that the site wants for the API is taken",
                where=f"port {ports.api}",
                expected="a free port",
                found=holder(ports.api),
                remedy="stop that process, or set ports.api to null and let a free one be chosen",
            )
        chosen.append(ports.api)
    candidates = [port for port in range(ports.first, ports.last + 1) if port not in chosen]
    random.shuffle(candidates)  # two points that start together should not try the same ones
    for port in candidates:
        if len(chosen) == count:
            break
        if is_free(port):
            chosen.append(port)
    if len(chosen) < count:
        raise UserError(
            "too few free ports",
            where=f"site ports {ports.first} to {ports.last}",
            expected=count,
            found=len(chosen),
        )
    return chosen


def is_free(port: int) -> bool:
    """Whether a server could listen on this port on every address now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # Without this, ports of connections that ended a moment ago would count as taken.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
            probe.listen(1)
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                return False
            raise
    return True


def listeners(port: int) -> list[int]:
    """Ids of the processes that listen on a port, as far as this user may see them."""
    found = []
    for connection in psutil.net_connections("tcp"):
        local = connection.laddr
        if connection.status == psutil.CONN_LISTEN and local and local.port == port:
            found += [connection.pid] if connection.pid else []
    return found


def holder(port: int) -> str:
    """Who listens on a port, for a message."""
    told = []
    for pid in listeners(port):
        try:
            process = psutil.Process(pid)
            told.append(f"process {pid} ({process.name()}) of user {process.username()}")
        except psutil.Error:
            told.append(f"process {pid}")
    return ", ".join(told) or "a process that this user may not see"
