"""apptainer: a process of the calling user in an image file; no entrypoint, no name, no daemon."""

from __future__ import annotations

from serve_repro.command import Command
from serve_repro.recipe.site import Site
from serve_repro.runtimes.container import (
    ENTRY,
    VIEW,
    binds,
    each,
    environment,
    limits,
    overlays,
    settings,
)

_HOST = ["/dev/shm", "/etc/hosts"]  # noqa: S108
"""What --contain leaves out; the workers of a rank share memory."""


def start(serve: Command, image: str, name: str, site: Site) -> Command:
    """`apptainer exec` around the serve command; the network is the host's, as always with it."""
    del image, name  # the file is named by the digest; the process is found by its session
    container = settings(site)
    words = [*limits(site), *container.command, "exec", "--cleanenv", "--contain", "--no-home"]
    words += each("--add-caps", [f"CAP_{name}" for name in container.capabilities])
    words += container.options
    for device in [*container.devices, *_HOST]:
        words += ["--bind", device]
    for bind in binds(serve, site):
        words += mount(bind.source, bind.target, read_only=bind.read_only)
    words += overlays(serve)
    words += ["--pwd", VIEW.results, "${IMAGE_FILE}", *ENTRY, *serve.argv]
    # Not --env, which splits values at commas. HOME is --home's alone, and / without it.
    env = {key: value for key, value in environment(serve).items() if key != "HOME"}
    return Command(argv=words, env={f"APPTAINERENV_{key}": value for key, value in env.items()})


def mount(source: str, target: str, *, read_only: bool = True) -> list[str]:
    """Mount a file or folder."""
    return ["--bind", f"{source}:{target}{':ro' if read_only else ''}"]
