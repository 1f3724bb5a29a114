"""Images made of bytes: layers, configuration, manifest and list, as an OCI layout. No network."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any, NamedTuple

MEDIA = "application/vnd.oci.image"


class Layer(NamedTuple):
    """One layer as it travels, and as it is named once unpacked."""

    packed: bytes
    diff_id: str


class Digests(NamedTuple):
    """What an image's parts are called."""

    image_list: str
    manifest: str
    config: str
    layers: list[str]


def layer(files: dict[str, tuple[bytes, int]]) -> Layer:
    """A layer of {path: (contents, mode)}; the same files give the same bytes."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        for path, (content, mode) in sorted(files.items()):
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(content), mode
            tar.addfile(entry, io.BytesIO(content))
    return pack(raw.getvalue())


def pack(tar: bytes) -> Layer:
    """A tar as a layer."""
    packed = gzip.compress(tar, compresslevel=1, mtime=0)
    return Layer(packed, f"sha256:{hashlib.sha256(tar).hexdigest()}")


def write_layout(
    folder: Path, layers: list[Layer], entrypoint: list[str], machine: str = "amd64"
) -> Digests:
    """Write an image of these layers, in a list with the reference name `image`."""
    blobs = folder / "blobs/sha256"
    blobs.mkdir(parents=True)

    def blob(raw: bytes, kind: str, **more: Any) -> dict[str, Any]:
        name = hashlib.sha256(raw).hexdigest()
        (blobs / name).write_bytes(raw)
        return {"mediaType": f"{MEDIA}.{kind}", "digest": f"sha256:{name}", "size": len(raw), **more}

    def document(kind: str, value: dict[str, Any], **more: Any) -> dict[str, Any]:
        return blob(json.dumps(value).encode(), kind, **more)

    platform = {"os": "linux", "architecture": machine}
    packed = [blob(each.packed, "layer.v1.tar+gzip") for each in layers]
    environment = ["PATH=/usr/local/bin:/usr/bin:/bin", "IN_IMAGE=1"]
    config = document(
        "config.v1+json",
        platform
        | {
            "config": {"Entrypoint": entrypoint, "Env": environment, "WorkingDir": "/root"},
            "rootfs": {"type": "layers", "diff_ids": [each.diff_id for each in layers]},
        },
    )
    head = {"schemaVersion": 2}
    single = head | {"mediaType": f"{MEDIA}.manifest.v1+json"}
    manifest = document(
        "manifest.v1+json", single | {"config": config, "layers": packed}, platform=platform
    )
    several = head | {"mediaType": f"{MEDIA}.index.v1+json"}
    named = {"org.opencontainers.image.ref.name": "image"}
    index = document("index.v1+json", several | {"manifests": [manifest]}, annotations=named)
    (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}', encoding="utf-8")
    (folder / "index.json").write_text(json.dumps(several | {"manifests": [index]}), encoding="utf-8")
    return Digests(
        index["digest"], manifest["digest"], config["digest"], [each["digest"] for each in packed]
    )
