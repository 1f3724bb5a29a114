"""Docker: one container a rank, pulled before by digest, never pulled by the run itself."""

from __future__ import annotations

from serve_repro.command import Command
from serve_repro.errors import UserError
from serve_repro.recipe.recipe import Recipe
from serve_repro.recipe.site import Container, Site
from serve_repro.runtimes.view import View

VIEW = View(
    vllm=["vllm"],
    weights="/model",
    draft="/draft",
    patches="/patches",
    results="/results",
    scratch="/tmp",
)

_OWN_MOUNTS = [
    ("${WEIGHTS_DIR}", VIEW.weights, True),
    ("${PATCH_DIR}", VIEW.patches, True),
    ("${RANK_DIR}", VIEW.results, False),
]


def image(recipe: Recipe) -> str:
    """The image's name without its tag: the digest takes the tag's place."""
    reference = recipe.image.reference
    if reference is None:
        raise UserError(
            "this site runs containers, and the recipe names no image",
            where=f"config/recipes/{recipe.name}.yaml: image.reference",
            expected="an image reference",
            found=f"only the environment {recipe.image.environment}",
        )
    head, _, tail = reference.rpartition("/")
    name = tail.split("@")[0].split(":")[0]
    return f"{head}/{name}" if head else name


def start(serve: Command, image: str, name: str, site: Site) -> Command:
    """`docker run` around the serve command; its entrypoint is bash, whatever the image says."""
    container = _container(site)
    words = [*container.command, "run", "--rm", "--init", "--name", name, "--pull", "never"]
    words += ["--network", "host", "--ipc", "host", "--shm-size", container.shm_size]
    words += _each("--device", container.devices)
    words += _each("--group-add", container.groups)
    words += _each("--ulimit", [f"{key}={value}" for key, value in container.ulimits.items()])
    words += _each("--cap-add", container.capabilities)
    words += _each("--security-opt", container.security_options)
    words += ["--privileged"] if container.privileged else []
    # Ranks resolve their own host name; some sites map it to a loopback address.
    words += ["--add-host", "${HOST_NAME}:${HOST_ADDR}"]
    draft = [("${DRAFT_DIR}", VIEW.draft, True)] if any(VIEW.draft in w for w in serve.argv) else []
    site_mounts = [(mount.source, mount.target, mount.read_only) for mount in container.mounts]
    for source, target, read_only in [*_OWN_MOUNTS, *draft, *site_mounts]:
        words += ["--volume", f"{source}:{target}{':ro' if read_only else ''}"]
    words += ["${OVERLAY_MOUNTS}"] if "SERVE_REPRO_PATCH_SET" in serve.env else []
    for key, value in serve.env.items():
        words += ["--env", f"{key}={value}"]
    words += ["--workdir", VIEW.results, "--entrypoint", "bash"]
    words += [f"{image}@${{IMAGE_DIGEST}}", "-c", 'exec "$$@"', "bash", *serve.argv]
    return Command(argv=words)


def mount(source: str, target: str) -> list[str]:
    """The words that put a file of the host, read-only, in place of one of the image."""
    return ["--volume", f"{source}:{target}:ro"]


def cleanup(name: str, site: Site) -> list[Command]:
    """Remove the container by its name: killing docker's client leaves it up."""
    return [Command(argv=[*_container(site).command, "rm", "--force", name])]


def _container(site: Site) -> Container:
    assert site.container is not None  # the site's own check
    return site.container


def _each(option: str, values: list[str]) -> list[str]:
    return [word for value in values for word in (option, value)]
