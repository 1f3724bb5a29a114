"""A real registry on this machine, for one test module, and tiny images in it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_CONFIG = """
version: 0.1
storage: {{filesystem: {{rootdirectory: {storage}}}, delete: {{enabled: true}}}}
http: {{addr: "{address}"}}
"""


def require_programs() -> None:
    """Skip aloud where the programs are missing; fail instead where the CI has installed them."""
    missing = [name for name in ("skopeo", "docker-registry") if not shutil.which(name)]
    if missing and os.environ.get("SERVE_REPRO_REQUIRE_SLURM") == "1":
        pytest.fail(f"SERVE_REPRO_REQUIRE_SLURM=1, but not installed: {missing}", pytrace=False)
    if missing:
        pytest.skip(f"no registry: not installed: {missing}")


class Registry:
    """A registry that listens on a free loopback port."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        config = folder / "config.yml"
        config.write_text(
            _CONFIG.format(storage=folder / "storage", address=self.address), encoding="utf-8"
        )
        # The registry takes every REGISTRY_* variable for a setting of its own.
        clean = {key: value for key, value in os.environ.items() if not key.startswith("REGISTRY_")}
        with (folder / "registry.log").open("wb") as log:
            self.process = subprocess.Popen(
                ["docker-registry", "serve", str(config)], env=clean, stdout=log, stderr=log
            )

    def wait(self) -> None:
        """Until it answers."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        for _ in range(100):
            try:
                opener.open(f"http://{self.address}/v2/", timeout=5).close()
                return
            except OSError:
                assert self.process.poll() is None, (self.folder / "registry.log").read_text()
                time.sleep(0.1)
        raise AssertionError("the registry does not answer")

    def stop(self) -> None:
        """End it and wait for that."""
        self.process.terminate()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def push(self, name: str, tag: str, text: str, machine: str = "amd64") -> dict[str, str]:
        """Push a list with one tiny image; returns the digests of {list, manifest, config, layer}."""
        layout = self.folder / f"{tag}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
        digests = write_layout(layout, text, machine)
        source, target = f"oci:{layout}:image", f"docker://{self.address}/{name}:{tag}"
        copy = ["skopeo", "--insecure-policy", "copy", "--all", "--quiet", "--dest-tls-verify=false"]
        subprocess.run(
            [*copy, source, target],
            check=True,
            timeout=60,
        )
        return digests


def write_layout(layout: Path, text: str, machine: str) -> dict[str, str]:
    """An image of one layer, in a list, as an OCI layout; returns the digests of its parts."""
    blobs = layout / "blobs/sha256"
    blobs.mkdir(parents=True)

    def blob(raw: bytes, kind: str, **more: Any) -> dict[str, Any]:
        name = hashlib.sha256(raw).hexdigest()
        (blobs / name).write_bytes(raw)
        media = f"application/vnd.oci.image.{kind}"
        return {"mediaType": media, "digest": f"sha256:{name}", "size": len(raw), **more}

    def document(kind: str, value: dict[str, Any], **more: Any) -> dict[str, Any]:
        return blob(json.dumps(value).encode(), kind, **more)

    platform = {"os": "linux", "architecture": machine}
    content = text.encode().ljust(1024, b"\0")  # nothing unpacks it: any bytes are a layer
    layer = blob(content, "layer.v1.tar")
    config = document(
        "config.v1+json", platform | {"rootfs": {"type": "layers", "diff_ids": [layer["digest"]]}}
    )
    single = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json"}
    manifest = document(
        "manifest.v1+json", single | {"config": config, "layers": [layer]}, platform=platform
    )
    several = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json"}
    named = {"org.opencontainers.image.ref.name": "image"}
    index = document("index.v1+json", several | {"manifests": [manifest]}, annotations=named)
    (layout / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}', encoding="utf-8")
    (layout / "index.json").write_text(json.dumps(several | {"manifests": [index]}), encoding="utf-8")
    parts = {"list": index, "manifest": manifest, "config": config, "layer": layer}
    return {key: part["digest"] for key, part in parts.items()}


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    """A registry of the test's own, gone after it."""
    require_programs()
    started = Registry(tmp_path)
    try:
        started.wait()
        yield started
    finally:
        started.stop()
