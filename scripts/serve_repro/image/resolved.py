"""What was resolved (image.json), as the engines need it."""

from __future__ import annotations

from typing import Any, NamedTuple

from serve_repro.image.reference import by_digest


class Image(NamedTuple):
    """One image, or one pinned environment."""

    name: str
    """Without tag; of an environment: envs/<name>."""
    digest: str
    """What a pull names: the list's digest where there is a list."""
    platform: str
    """Digest of our platform's manifest."""
    config: str
    """Digest of the configuration, which names every unpacked layer: what a node must hold."""
    layers: list[str]
    """Digests of the layers as they travel."""
    size: int
    """Bytes of the layers as they travel; 0 for an environment."""

    @property
    def pinned(self) -> str:
        """Name and digest, for messages and for engines that take it so."""
        return by_digest(self.name, self.digest)


def read_image(document: dict[str, Any]) -> Image:
    """An image of image.json."""
    digest = document["digest"]
    return Image(
        name=document["image"],
        digest=digest,
        platform=document.get("platform", digest),
        config=document.get("config", digest),
        layers=[layer["digest"] for layer in document.get("layers", [])],
        size=document.get("bytes", 0),
    )
