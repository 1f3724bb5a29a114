"""The launcher's own machine: a child process, nothing around it."""

from __future__ import annotations

from serve_repro.command import Command


def wrap(command: Command, node: str) -> Command:
    """The command itself."""
    del node  # it is always this machine
    return command
