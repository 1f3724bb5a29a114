"""podman: docker's command line, without a daemon and without a registry of its own choice."""

from __future__ import annotations

import os
from pathlib import Path

from serve_repro.image.call import call
from serve_repro.image.docker import Docker
from serve_repro.image.reference import by_digest, is_loopback, qualified
from serve_repro.image.resolved import Image


class Podman(Docker):
    """The engine behind a site's `podman` words."""

    credentials = (
        "podman login; looked for in $REGISTRY_AUTH_FILE, "
        "${XDG_RUNTIME_DIR}/containers/auth.json and ~/.docker/config.json"
    )

    def version(self) -> str:
        """Its version: podman is its own engine."""
        return call([*self.command, "version", "--format", "{{.Client.Version}}"]).strip()

    def target(self, image: Image) -> str:
        """What a run names."""
        return by_digest(qualified(image.name), image.digest)

    def fetch(self, image: Image, timeout: float) -> None:
        """Pull once, whatever lies here already."""
        plain = ["--tls-verify=false"] if is_loopback(image.name) else []
        call([*self.command, "pull", "--quiet", *plain, self.target(image)], timeout=timeout)

    def stores(self) -> list[Path]:
        """Folders that a pull fills: layers are buffered in the second."""
        root = call([*self.command, "info", "--format", "{{.Store.GraphRoot}}"]).strip()
        return [Path(root), Path(os.environ.get("TMPDIR") or "/var/tmp")]  # noqa: S108 - podman's own
