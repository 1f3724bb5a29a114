"""The software that hooks are written for: vLLM's environment, and aiter's sources."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.end_to_end.conftest import environments

__all__ = ["environments"]

BASE = Path(__file__).parents[2]
REQUIRED = "SERVE_REPRO_REQUIRE_TARGETS"


def lacking(what: str) -> None:
    """Skip with the reason, or fail where everything must be tried."""
    if os.environ.get(REQUIRED) == "1":
        pytest.fail(f"{REQUIRED}=1, but {what}", pytrace=False)
    pytest.skip(what)


@pytest.fixture(scope="session")
def serve_python(environments: Path) -> Path:
    """The interpreter of the serving environment, which has torch."""
    return environments / "serve-cpu/bin/python"


@pytest.fixture(scope="session")
def aiter_sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the module that is patched, out of the pinned wheel; nothing is installed."""
    folder = tmp_path_factory.mktemp("aiter")
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--no-deps"]
    command += ["--only-binary=:all:", "--requirement", str(Path(__file__).parent / "aiter-wheel.txt")]
    run = subprocess.run(
        [*command, "--dest", str(folder)], capture_output=True, text=True, check=False, timeout=300
    )
    assert "DO NOT MATCH THE HASHES" not in run.stderr, run.stderr
    if run.returncode:
        lacking(f"pip cannot fetch amd-aiter here: {run.stderr.strip().splitlines()[-1:]}")
    [wheel] = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as opened:
        opened.extract("aiter/tuned_gemm.py", folder / "packages")
    wheel.unlink()
    return folder / "packages"
