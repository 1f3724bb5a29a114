"""enroot: one squashfs file an image, made on the node from the pinned digest."""

from __future__ import annotations

import shlex
from pathlib import Path

from serve_repro.image.call import call
from serve_repro.image.files import ImageFiles
from serve_repro.image.reference import enroot_address, is_loopback
from serve_repro.image.resolved import Image

RC = 'exec "$@"\n'
"""Start-up file of a container that leaves the image's own entrypoint out."""


class Enroot:
    """The engine behind a site's `enroot` words.

    Args:
        command: the words before every call.
        images: the folder of the node's image files.
    """

    space = 4
    """Bytes needed a byte that travels: packed, unpacked at about twice the size, and the file."""
    credentials = "looked for in $ENROOT_CONFIG_PATH/.credentials, else ~/.config/enroot/.credentials"

    def __init__(self, command: list[str], images: Path) -> None:
        self.command = command
        self.files = ImageFiles(images, "sqsh")

    def version(self) -> str:
        """Its version."""
        return call([*self.command, "version"]).strip()

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
        """Import once, with a cache of this image alone.

        enroot (4.1) compares each blob with its digest, and not a manifest with the digest that it
        asked for. So what came into that cache proves the image; in a shared one, a swapped manifest
        whose layers were already there would pass.
        """

        def pull(work: Path, part: Path) -> set[str]:
            cache, scratch = work / "cache", work / "tmp"
            scratch.mkdir(exist_ok=True)
            plain = {"ENROOT_ALLOW_HTTP": "y"} if is_loopback(image.name) else {}
            address = enroot_address(image.name, image.digest)
            call(
                [*self.command, "import", "--output", str(part), address],
                env={
                    "ENROOT_CACHE_PATH": str(work / "cache"),
                    "ENROOT_TEMP_PATH": str(scratch),
                    **plain,
                },
                timeout=timeout,
            )
            # Each blob lies there, packed anew, under the digest that it had as it came.
            return {f"sha256:{path.name}" for path in cache.iterdir() if path.is_file()}

        self.files.make(image, pull)

    def stores(self) -> list[Path]:
        """Folders that an import fills."""
        return [self.files.folder]

    def run(self, image: Image, words: list[str], stdin: str = "") -> str:
        """Standard output of a command inside the image, its own entrypoint left out."""
        rc = self.files.folder / "plain.rc"
        rc.write_text(RC, encoding="utf-8")
        return call([*self.command, "start", "--rc", str(rc), self.target(image), *words], stdin=stdin)
