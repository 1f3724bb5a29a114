"""The clean environment that ranks and the client start from."""

from __future__ import annotations

import os

_INHERITED = ("PATH", "LANG", "LC_ALL", "HOME", "USER", "LD_LIBRARY_PATH")


def clean_environment() -> dict[str, str]:
    """All that is taken over from the launcher's environment: no token, no surprise."""
    return {name: os.environ[name] for name in _INHERITED if name in os.environ}
