"""enroot: a process of the calling user in an image file, started past the image's own entrypoint."""

from __future__ import annotations

from serve_repro.command import Command
from serve_repro.recipe.site import Site
from serve_repro.runtimes.container import (
    ENTRY,
    binds,
    each,
    environment,
    limits,
    overlays,
    settings,
)

_RC = "${SCRATCH}/enroot.rc"

_WRITE_RC = ["bash", "-c", 'printf \'exec "$$@"\\n\' >"$$0" && exec "$$@"', _RC]
"""A start-up file of its own: the image's would hand every word to its entrypoint."""


def start(serve: Command, image: str, name: str, site: Site) -> Command:
    """`enroot start` around the serve command; network and /dev are the host's, as always with it."""
    del image, name  # the file is named by the digest; the process is found by its session
    container = settings(site)
    words = [*_WRITE_RC, *limits(site), *container.command, "start", "--rc", _RC, *container.options]
    for bind in binds(serve, site):
        words += mount(bind.source, bind.target, read_only=bind.read_only)
    words += overlays(serve)
    words += each("--env", [f"{key}={value}" for key, value in environment(serve).items()])
    return Command(argv=[*words, "${IMAGE_FILE}", *ENTRY, *serve.argv])


def mount(source: str, target: str, *, read_only: bool = True) -> list[str]:
    """Mount a file or folder."""
    return ["--mount", f"{source}:{target}:x-create=auto,rbind,{'ro' if read_only else 'rw'}"]
