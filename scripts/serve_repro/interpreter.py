"""Which `python` the rules' commands find."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def put_own_python_first() -> None:
    """Rules say `python`; make that the one that runs Snakemake, whatever the caller's PATH says."""
    own = str(Path(sys.executable).parent)
    os.environ["PATH"] = os.pathsep.join([own, os.environ["PATH"]])
