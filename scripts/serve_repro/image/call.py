"""One call of an engine's command line."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence

from serve_repro.errors import UserError
from serve_repro.image.causes import cause_of, last_words, scrub

QUICK_S = 300.0
"""Longest call that moves no image, in seconds."""

_NO_ENGINE = ("cannot connect to the docker daemon", "is the docker daemon running", "docker.sock")


class CallFailed(Exception):
    """An engine said no."""

    def __init__(self, message: str) -> None:
        self.said = scrub(last_words(message))
        """Its last line, without secrets."""
        self.cause = cause_of(last_words(message)) or cause_of(message)
        self.message = message
        super().__init__(self.said)


def call(
    words: Sequence[str],
    stdin: str = "",
    env: Mapping[str, str] | None = None,
    timeout: float = QUICK_S,
) -> str:
    """Standard output of a command.

    Args:
        words: the command.
        stdin: what it reads.
        env: what its environment has beyond ours.
        timeout: seconds; a command that takes longer is killed, and has failed.

    Raises:
        CallFailed: it ended with another code than 0, or took too long.
        UserError: there is no such program, or nothing answers it.
    """
    try:
        run = subprocess.run(
            list(words),
            input=stdin,
            env={**os.environ, **(env or {})},
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=timeout,
        )
    except FileNotFoundError as error:
        raise UserError(
            f"{words[0]} is not installed here", remedy="compare the site's container.command"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise CallFailed(f"timeout: not done after {timeout:.0f} s") from error
    if run.returncode == 0:
        return run.stdout
    message = run.stderr.strip() or run.stdout.strip() or f"exit code {run.returncode}"
    if any(sign in message.lower() for sign in _NO_ENGINE):
        raise UserError(
            "the container engine does not answer",
            found=scrub(last_words(message)),
            remedy="start it, or let the site's container.command reach it (sudo docker, a socket)",
        )
    raise CallFailed(message)
