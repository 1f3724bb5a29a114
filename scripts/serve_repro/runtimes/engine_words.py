"""The words that docker and podman share: run, mount, find and remove one container by its name."""

from __future__ import annotations

from serve_repro.command import Command
from serve_repro.recipe.site import Site
from serve_repro.runtimes.container import ENTRY, binds, each, environment, overlays, settings


def run(serve: Command, image: str, name: str, site: Site, user: list[str]) -> Command:
    """`run` around the serve command.

    Args:
        user: words that make the rank run as who started it.
    """
    container = settings(site)
    words = [*container.command, "run", "--rm", "--init", "--name", name, "--pull", "never"]
    words += user if container.user == "caller" else []
    words += ["--network", "host", "--ipc", "host"]
    words += ["--shm-size", container.shm_size] if container.shm_size else []
    words += each("--device", container.devices)
    words += each("--group-add", container.groups)
    words += each("--ulimit", [f"{key}={value}" for key, value in container.ulimits.items()])
    words += each("--cap-add", container.capabilities)
    words += each("--security-opt", container.security_options)
    words += ["--privileged"] if container.privileged else []
    words += container.options
    # Ranks resolve their own host name; some sites map it to a loopback address.
    words += ["--add-host", "${HOST_NAME}:${HOST_ADDR}"]
    for bind in binds(serve, site):
        words += mount(bind.source, bind.target, read_only=bind.read_only)
    words += overlays(serve)
    words += each("--env", [f"{key}={value}" for key, value in environment(serve).items()])
    entry, *rest = ENTRY
    words += ["--workdir", "/results", "--entrypoint", entry]
    return Command(argv=[*words, f"{image}@${{IMAGE_DIGEST}}", *rest, *serve.argv])


def mount(source: str, target: str, *, read_only: bool = True) -> list[str]:
    """Mount a file or folder; one that is not there is an error (`--volume` would make it)."""
    end = ",readonly" if read_only else ""
    return ["--mount", f"type=bind,source={source},target={target}{end}"]


def cleanup(name: str, site: Site) -> list[Command]:
    """Remove the container by its name: killing the client leaves it up."""
    return [Command(argv=[*settings(site).command, "rm", "--force", name])]


def left(name: str, site: Site) -> Command:
    """Prints the container's name while it is there in any state."""
    words = ["ps", "--all", "--filter", f"name=^{name}$$", "--format", "{{.Names}}"]
    return Command(argv=[*settings(site).command, *words])


def first_process(name: str, site: Site) -> Command:
    """Prints the id of the container's first process on its node."""
    words = ["inspect", "--type", "container", "--format", "{{.State.Pid}}", name]
    return Command(argv=[*settings(site).command, *words])
