"""Slurm: one step on one named node of the allocation that the point already has."""

from __future__ import annotations

from serve_repro.command import Command


def wrap(command: Command, node: str) -> Command:
    """`srun` around a command. Stdin is closed: a step that reads it eats the script's own."""
    words = ["srun", "--overlap", "--nodes=1", "--ntasks=1", f"--nodelist={node}"]
    words += ["--input=none", "--kill-on-bad-exit=1", *command.argv]
    return Command(argv=words, env=command.env)
