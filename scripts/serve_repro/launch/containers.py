"""Commands that ask a container engine, and remove what a rank has left in it."""

from __future__ import annotations

import subprocess
import sys

ASK_S, REMOVE_S = 10, 60
"""How long an engine may take to answer, and to remove a container (seconds)."""


class NoAnswer(Exception):
    """The engine is not there, does not answer, or says no; the message tells what it said."""


def ask(argv: list[str]) -> str:
    """Standard output of one short command, without the space around it.

    Raises:
        NoAnswer: it failed.
    """
    try:
        run = subprocess.run(
            argv, check=False, timeout=ASK_S, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise NoAnswer(str(error)) from error
    if run.returncode:
        raise NoAnswer(run.stderr.strip() or f"exit code {run.returncode}")
    return run.stdout.strip()


def clean_up(argv: list[str]) -> None:
    """One command, whose failure is told and keeps nothing else from being cleaned up."""
    try:
        # Its words go to the log: standard output is the supervisor's.
        subprocess.run(argv, check=False, timeout=REMOVE_S, stdin=subprocess.DEVNULL, stdout=sys.stderr)
    except (OSError, subprocess.SubprocessError) as error:
        print(f"clean-up: {error}", file=sys.stderr)


def left(argv: list[str]) -> list[str]:
    """What is left by what a command prints: a container a line; also that nobody can tell."""
    try:
        return [f"container {line}" for line in ask(argv).splitlines()]
    except NoAnswer as error:
        return [f"perhaps a container: its engine does not answer ({error})"]
