"""Docker: images in a daemon's store, asked for by digest, proven by their Id."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

from serve_repro.image.call import CallFailed, call
from serve_repro.image.reference import by_digest
from serve_repro.image.registry import PLATFORM
from serve_repro.image.resolved import Image


class Docker:
    """The engine behind a site's `docker` words.

    Args:
        command: the words before every call: [docker], or [sudo, docker].
    """

    space = 3
    """Bytes needed a byte that travels: packed once, and unpacked at about twice the size."""
    credentials = "docker login; looked for in $DOCKER_CONFIG/config.json, else ~/.docker/config.json"

    def __init__(self, command: list[str]) -> None:
        self.command = command

    def version(self) -> str:
        """The version that pulls: the daemon's."""
        return call([*self.command, "version", "--format", "{{.Server.Version}}"]).strip()

    def target(self, image: Image) -> str:
        """What a run names."""
        return by_digest(image.name, image.digest)

    def removal(self, image: Image) -> str:
        """What a person does to take the image off this node."""
        return shlex.join([*self.command, "image", "rm", self.target(image)])

    def present(self, image: Image) -> str | None:
        """The configuration's digest of what lies here under the image's digest; None: nothing."""
        try:
            found = call([*self.command, "image", "inspect", self.target(image)])
        except CallFailed as error:
            if any(sign in error.message.lower() for sign in ("no such image", "image not known")):
                return None
            raise
        return _config(json.loads(found)[0], image)

    def fetch(self, image: Image, timeout: float) -> None:
        """Pull once, whatever lies here already."""
        call([*self.command, "pull", "--quiet", self.target(image)], timeout=timeout)

    def stores(self) -> list[Path]:
        """Folders that a pull fills."""
        return [Path(call([*self.command, "info", "--format", "{{.DockerRootDir}}"]).strip())]

    def run(self, image: Image, words: list[str], stdin: str = "") -> str:
        """Standard output of a command inside the image, without network."""
        head = ["run", "--rm", "--interactive", "--pull", "never", "--network", "none"]
        entry = ["--entrypoint", words[0], self.target(image), *words[1:]]
        return call([*self.command, *head, *entry], stdin=stdin)


def _config(found: dict[str, Any], image: Image) -> str:
    identity = str(found["Id"])
    if ":" not in identity:  # podman leaves the algorithm out
        identity = f"sha256:{identity}"
    # With containerd's store, an Id is the digest of list or manifest: those bytes name the
    # configuration, and the platform is that of the contents which are really there.
    by_content = "Descriptor" in found and identity in (image.digest, image.platform)
    if by_content and (found.get("Os"), found.get("Architecture")) == PLATFORM:
        return image.config
    return identity
