"""Exit codes in words."""

from __future__ import annotations

import signal

_SIGNALLED = 128


def describe_exit(code: int) -> str:
    """'exit code 3', 'signal SIGKILL', or 'exit code 137 (SIGKILL)' as shells and containers say it."""
    if code > _SIGNALLED:
        try:
            return f"exit code {code} ({signal.Signals(code - _SIGNALLED).name})"
        except ValueError:
            return f"exit code {code}"
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"
