"""apptainer: one SIF file an image, made on the node from the pinned digest."""

from __future__ import annotations

import shlex
from pathlib import Path

from serve_repro.documents import file_sha256
from serve_repro.image.call import call
from serve_repro.image.files import ImageFiles
from serve_repro.image.reference import by_digest, is_loopback
from serve_repro.image.resolved import Image


class Apptainer:
    """The engine behind a site's `apptainer` words.

    Args:
        command: the words before every call.
        images: the folder of the node's image files.
    """

    space = 4
    """Bytes needed a byte that travels: packed, unpacked at about twice the size, and the file."""
    credentials = (
        "apptainer registry login, or APPTAINER_DOCKER_USERNAME and APPTAINER_DOCKER_PASSWORD; "
        "looked for there, in ~/.apptainer/docker-config.json and in ~/.docker/config.json"
    )

    def __init__(self, command: list[str], images: Path) -> None:
        self.command = command
        self.files = ImageFiles(images, "sif")

    def version(self) -> str:
        """Its version."""
        return call([*self.command, "--version"]).split()[-1]

    def target(self, image: Image) -> str:
        """What a run names."""
        return str(self.files.path(image))

    def removal(self, image: Image) -> str:
        """What a person does to take the image off this node."""
        return f"rm {shlex.quote(self.target(image))}"

    def present(self, image: Image) -> str | None:
        """The configuration's digest that the node's file was made from; None: there is none."""
        return self.files.present(image)

    def fetch(self, image: Image, timeout: float) -> None:
        """Pull once. What travels goes into a cache of this image alone, where it can be looked at."""

        def pull(work: Path, part: Path) -> set[str]:
            cache, scratch = work / "cache", work / "tmp"
            scratch.mkdir(exist_ok=True)
            plain = ["--no-https"] if is_loopback(image.name) else []
            address = f"docker://{by_digest(image.name, image.digest)}"
            call(
                [*self.command, "--quiet", "pull", "--force", *plain, str(part), address],
                env={"APPTAINER_CACHEDIR": str(cache), "APPTAINER_TMPDIR": str(scratch)},
                timeout=timeout,
            )
            return {f"sha256:{file_sha256(path)}" for path in cache.glob("cache/blob/blobs/sha256/*")}

        self.files.make(image, pull)

    def stores(self) -> list[Path]:
        """Folders that a pull fills."""
        return [self.files.folder]

    def run(self, image: Image, words: list[str], stdin: str = "") -> str:
        """Standard output of a command inside the image; what it knows of this machine is its kernel."""
        options = ["exec", "--cleanenv", "--contain", "--no-home", "--pwd", "/"]
        return call([*self.command, "--quiet", *options, self.target(image), *words], stdin=stdin)
