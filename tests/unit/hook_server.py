"""A small stand-in for installed serving software, and processes that load hooks as vLLM does."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from serve_repro.documents import file_sha256
from serve_repro.patches.attestation import read_attestations

BASE = Path(__file__).parents[2]

HOOK = """
def install():
    from victim import part
    part.answer = lambda: "patched"
    return ["part.answer"]
"""
BROKEN_HOOK = """
def install():
    raise SystemExit("even this must not let the process go on")
"""
AS_VLLM = """
import importlib.metadata, multiprocessing, sys
multiprocessing.current_process().name = sys.argv[2]
for plugin in importlib.metadata.entry_points(group="vllm.general_plugins"):
    try:
        plugin.load()()
    except Exception:
        pass  # as vLLM does
loaded = [name for name in sys.modules if name.startswith(("victim", "serve_repro_hooks."))]
from victim import part
print(part.answer(), loaded)
"""
"""What vLLM does in each of its processes, in small."""


class Server:
    """A place with a package that is to be patched, and one patch set."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes = ["worker", "api"]
        shutil.copytree(
            BASE / "patches/hooks", folder / "hooks", ignore=shutil.ignore_patterns("__pycache__")
        )
        (folder / "packages/victim").mkdir(parents=True)
        (folder / "packages/victim/__init__.py").touch()
        self.part = folder / "packages/victim/part.py"
        self.part.write_text('def answer():\n    return "plain"\n', encoding="utf-8")
        self.set()

    def set(self, code: str = HOOK, sha256: str | None = None, module: str = "victim.part") -> None:
        """Make the one hook of the set this code, for a target with this hash (None: the right one)."""
        (self.folder / "hooks/serve_repro_hooks/fake.py").write_text(code, encoding="utf-8")
        target = {"module": module, "sha256": {"victim 1": sha256 or file_sha256(self.part)}}
        entry = {
            "id": "fake",
            "hook": "fake",
            "targets": [target],
            "superseded_by": "victim.own_remedy",
            "processes": self.processes,
        }
        (self.folder / "overlay.json").write_text('{"patches": []}', encoding="utf-8")
        (self.folder / "set.json").write_text(json.dumps({"hooks": [entry]}), encoding="utf-8")

    def env(self) -> dict[str, str]:
        """What a rank is started with, as far as hooks are concerned."""
        return {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": f"{self.folder}/hooks:{self.folder}/packages",
            "PYTHONDONTWRITEBYTECODE": "1",
            "SERVE_REPRO_PATCH_SET": f"{self.folder}/set.json",
            "SERVE_REPRO_ATTESTATIONS": f"{self.folder}/attestations.jsonl",
            "SERVE_REPRO_RANK": "1",
        }

    def run(
        self, process: str, patched: bool = True, command: str = "serve"
    ) -> subprocess.CompletedProcess[str]:
        """A process of that name, which loads plugins as vLLM does."""
        env = self.env() if patched else without_patches(self.env())
        return subprocess.run(
            [sys.executable, "-c", AS_VLLM, command, process],
            env=env,
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )

    def attested(self) -> list[dict[str, Any]]:
        """What the processes have said so far."""
        return read_attestations(self.folder / "attestations.jsonl")


def without_patches(env: dict[str, str]) -> dict[str, str]:
    """The same environment without a patch set."""
    return {name: value for name, value in env.items() if not name.startswith("SERVE_REPRO_")}
