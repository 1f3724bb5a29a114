"""What the hooks' folder on PYTHONPATH costs a Python program that has nothing to do with vLLM.

    .venv/bin/python benchmarks/hook_startup.py      (about half a minute)

`python -c pass` with the environment of a patched rank against the same without the folder, in turns
so that what else the machine does falls on both. Told are medians, their difference and their ratio.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

HOOKS = Path(__file__).resolve().parents[1] / "patches/hooks"
PAIRS = 300
LIMIT_MS = 5.0


def main() -> int:
    """0 if the difference is below the limit."""
    plain = {"PATH": os.environ["PATH"]}
    patched = plain | {"PYTHONPATH": str(HOOKS), "SERVE_REPRO_PATCH_SET": "/nowhere/set.json"}
    times: dict[str, list[float]] = {"without": [], "with": []}
    for pair in range(PAIRS + 5):
        # Each goes first in every other pair; the first pairs only warm the disk's cache.
        order = [("without", plain), ("with", patched)][:: 1 if pair % 2 else -1]
        for name, env in order:
            begin = time.perf_counter()
            subprocess.run([sys.executable, "-c", "pass"], env=env, check=True)
            if pair >= 5:
                times[name].append((time.perf_counter() - begin) * 1000)
    without, with_hooks = (statistics.median(times[name]) for name in ("without", "with"))
    difference = with_hooks - without
    print(f"python -c pass, median of {PAIRS}: {without:.2f} ms without, {with_hooks:.2f} ms with hooks")
    print(f"difference {difference:+.2f} ms (limit {LIMIT_MS:g} ms), ratio {with_hooks / without:.3f}")
    return 0 if difference < LIMIT_MS else 1


if __name__ == "__main__":
    sys.exit(main())
