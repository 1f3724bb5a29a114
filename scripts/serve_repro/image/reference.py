"""How each runtime wants an image named by digest, and what files of images are called."""

from __future__ import annotations

import re
from pathlib import Path

HUB = "docker.io"
"""The registry that a name without one means."""


def registry_of(name: str) -> str | None:
    """The registry that an image name begins with; None: it names none.

    The rule is Docker's: the first part is a registry if it has a dot or a port, or is "localhost".
    """
    first, slash, _ = name.partition("/")
    return first if slash and (re.search(r"[.:]", first) or first == "localhost") else None


def qualified(name: str) -> str:
    """An image name with its registry, for runtimes that assume none (podman)."""
    if registry_of(name):
        return name
    return f"{HUB}/{name}" if "/" in name else f"{HUB}/library/{name}"


def by_digest(name: str, digest: str) -> str:
    """`name@digest`, as docker takes it. Never with a tag: skopeo and apptainer refuse both at once."""
    return f"{name}@{digest}"


def enroot_address(name: str, digest: str) -> str:
    """What `enroot import` fetches: it sets the registry off with a #."""
    registry = registry_of(name)
    path = name.removeprefix(f"{registry}/")
    return f"docker://{registry}#{path}@{digest}" if registry else f"docker://{path}@{digest}"


def image_file(folder: Path, digest: str, suffix: str) -> Path:
    """Where an image file lies on a node: named by the digest that it was made from."""
    return folder / f"{digest.replace(':', '-')}.{suffix}"


def is_loopback(reference: str) -> bool:
    """Whether an image lies in a registry on this machine, which may do without TLS."""
    host = registry_of(reference)
    return host is not None and re.sub(r":\d+$", "", host) in ("127.0.0.1", "localhost")
