"""Ports that are free, addresses by route, and who holds what is taken."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from serve_repro.errors import UserError
from serve_repro.launch.network import address_towards, choose_ports, holder, is_free, listeners
from serve_repro.plan.model import Ports


@contextmanager
def listening(port: int = 0) -> Iterator[int]:
    """A socket of this process that listens."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", port))
        server.listen()
        yield server.getsockname()[1]


@contextmanager
def listening_on_a_row(count: int) -> Iterator[int]:
    """Neighbouring ports, all taken; gives the first."""
    for first in range(20000, 30000, count):
        with ExitStack() as held:
            try:
                for port in range(first, first + count):
                    held.enter_context(listening(port))
            except OSError:
                continue
            yield first
            return
    raise AssertionError("no neighbouring free ports on this machine")


def test_chosen_ports_are_free_and_of_the_range() -> None:
    chosen = choose_ports(Ports(first=21000, last=21099, api=None), 2)
    assert len(set(chosen)) == 2
    assert all(21000 <= port <= 21099 and is_free(port) for port in chosen)


def test_a_taken_port_is_never_chosen() -> None:
    with listening_on_a_row(2) as first:
        for _ in range(5):
            chosen = choose_ports(Ports(first=first, last=first + 3, api=None), 1)
            assert chosen[0] in (first + 2, first + 3)


def test_a_port_that_a_site_insists_on_comes_first_and_once() -> None:
    with listening() as port:
        pass  # it was free a moment ago
    assert choose_ports(Ports(first=port, last=port + 20, api=port), 2)[0] == port


def test_a_wanted_port_that_is_taken_names_who_holds_it() -> None:
    with (
        listening() as port,
        pytest.raises(UserError, match=f"port {port}: the port that the site wants") as error,
    ):
        choose_ports(Ports(first=21000, last=21099, api=port), 2)
    told = str(error.value)
    assert f"process {os.getpid()} (" in told
    assert "of user " in told
    assert "set ports.api to null" in told


def test_a_range_without_enough_free_ports_is_refused_with_both_counts() -> None:
    with listening_on_a_row(3) as first, pytest.raises(UserError, match="too few free ports") as error:
        choose_ports(Ports(first=first, last=first + 2, api=None), 2)
    assert f"site ports {first} to {first + 2}" in str(error.value)
    assert "expected: 2\n  found:    0" in str(error.value)


def test_a_port_of_a_connection_that_just_ended_counts_as_free() -> None:
    with listening() as port, socket.create_connection(("127.0.0.1", port)) as client:
        client.shutdown(socket.SHUT_RDWR)
    assert is_free(port)


def test_listeners_are_told_by_process() -> None:
    with listening() as port:
        assert listeners(port) == [os.getpid()]
        assert f"process {os.getpid()}" in holder(port)
        assert not is_free(port)
    assert listeners(port) == []


def test_a_connection_to_a_port_is_no_listener_on_it() -> None:
    with listening() as port, socket.create_connection(("127.0.0.1", port)) as client:
        own = client.getsockname()[1]
        assert listeners(own) == []


def test_the_address_towards_this_machine_is_loopback() -> None:
    assert address_towards("127.0.0.1") == ("127.0.0.1", "lo")


def test_all_of_127_is_loopback() -> None:
    assert address_towards("127.0.0.2")[1] == "lo"


def test_a_peer_that_has_no_address_is_named() -> None:
    with pytest.raises(UserError, match=r"no-such-host\.invalid: no route"):
        address_towards("no-such-host.invalid")
