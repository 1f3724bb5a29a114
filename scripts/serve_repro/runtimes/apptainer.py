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

_HOSTS = "/etc/hosts"
"""What --contain leaves out. It gives a /dev/shm of the rank's own, half the memory, gone with it."""


def start(serve: Command, image: str, name: str, site: Site) -> Command:
    """`apptainer exec` around the serve command; the network is the host's, as always with it."""
    del image, name  # the file is named by the digest; the process is found by its session
    container = settings(site)
    words = [*limits(site), *container.command, "exec", "--cleanenv", "--contain", "--no-home"]
    words += each("--add-caps", [f"CAP_{name}" for name in container.capabilities])
    words += container.options
    for device in [*container.devices, _HOSTS]:
        words += ["--bind", device]
    for bind in binds(serve, site):
        words += mount(bind.source, bind.target, read_only=bind.read_only)
    words += overlays(serve)
    env = environment(serve)
    # It sets HOME itself, whatever it is told, and the folder need not be there.
    home = ["env", f"HOME={env.pop('HOME')}"]
    words += ["--pwd", VIEW.results, "${IMAGE_FILE}", *ENTRY, *home, *serve.argv]
    # Not --env, which splits values at commas.
    return Command(argv=words, env={f"APPTAINERENV_{key}": value for key, value in env.items()})


def mount(source: str, target: str, *, read_only: bool = True) -> list[str]:
    """Mount a file or folder."""
    return ["--bind", f"{source}:{target}{':ro' if read_only else ''}"]
