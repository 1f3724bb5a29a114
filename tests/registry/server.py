"""A real registry on this machine, and tiny images in it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

_CONFIG = """
version: 0.1
storage: {{filesystem: {{rootdirectory: {storage}}}, delete: {{enabled: true}}}}
http: {{addr: "{address}"}}
{more}
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

    def __init__(self, folder: Path, storage: Path | None = None, more: str = "") -> None:
        self.folder, self.storage = folder, storage or folder / "storage"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        text = _CONFIG.format(storage=self.storage, address=self.address, more=more)
        (folder / "config.yml").write_text(text, encoding="utf-8")
        self.start()

    def start(self) -> None:
        """Start it, also again after a stop, on the same port."""
        # The registry takes every REGISTRY_* variable for a setting of its own.
        clean = {key: value for key, value in os.environ.items() if not key.startswith("REGISTRY_")}
        with (self.folder / "registry.log").open("ab") as log:
            self.process = subprocess.Popen(
                ["docker-registry", "serve", str(self.folder / "config.yml")],
                env=clean,
                stdout=log,
                stderr=log,
            )

    def wait(self) -> None:
        """Until it answers."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        for _ in range(100):
            try:
                opener.open(f"http://{self.address}/v2/", timeout=5).close()
                return
            except urllib.error.HTTPError:  # it answers, and wants a login
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

    def push_layout(self, layout: Path, name: str, tag: str) -> str:
        """Push an OCI layout's image `image`; returns the digest that the tag has now."""
        target = f"docker://{self.address}/{name}:{tag}"
        copy = ["skopeo", "--insecure-policy", "copy", "--all", "--quiet", "--dest-tls-verify=false"]
        # enroot asks first without saying that it takes OCI lists, and this registry then hides them.
        copy += ["--format", "v2s2"]
        subprocess.run([*copy, f"oci:{layout}:image", target], check=True, timeout=60)
        raw = subprocess.run(
            ["skopeo", "inspect", "--raw", "--tls-verify=false", target],
            check=True,
            timeout=60,
            capture_output=True,
        )
        return f"sha256:{hashlib.sha256(raw.stdout).hexdigest()}"

    def push(self, name: str, tag: str, text: str, machine: str = "amd64") -> dict[str, str]:
        """Push a list with one tiny image; returns the digests of {list, manifest, config, layer}."""
        layout = self.folder / f"{tag}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
        digests = write_layout(layout, text, machine)
        self.push_layout(layout, name, tag)
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
