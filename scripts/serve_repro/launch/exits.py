"""Exit codes in words."""

from __future__ import annotations

import signal


def describe_exit(code: int) -> str:
    """'exit code 3' or 'signal SIGKILL'."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"
