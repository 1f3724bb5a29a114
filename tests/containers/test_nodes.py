"""The simulated nodes themselves: what the other tests stand on."""

from __future__ import annotations

import pytest

from .conftest import Image
from .nodes import Node


@pytest.mark.parametrize("engine", ["docker", "podman"])
def test_two_nodes_have_stores_of_their_own(
    engine: str, request: pytest.FixtureRequest, image: Image
) -> None:
    first, second = request.getfixturevalue(f"{engine}_nodes")
    first.run("pull", "--quiet", image.pinned)
    assert first.run("image", "inspect", "--format", "{{.Id}}", image.pinned).strip().removeprefix(
        "sha256:"
    ) == image.config.removeprefix("sha256:")
    assert not second.run("image", "ls", "--quiet").strip()
    said = first.run(
        *[
            "run",
            "--rm",
            "--network",
            "host",
            "--entrypoint",
            "bash",
            image.pinned,
            "-c",
            "echo $0 $IN_IMAGE",
        ]
    )
    assert said.split() == ["bash", "1"]
    first.run("image", "rm", "--force", image.config.removeprefix("sha256:"))
    assert not first.run("image", "ls", "--quiet").strip()


def test_apptainer_runs_the_image(apptainer_nodes: list[Node], image: Image) -> None:
    node = apptainer_nodes[0]
    target = node.images / "x.sif"
    node.run("--quiet", "pull", str(target), f"docker://{image.pinned}", timeout=120)
    said = node.run(
        "--quiet", "exec", str(target), "python3", "-c", "import os; print(os.environ['IN_IMAGE'])"
    )
    assert said.strip() == "1"
    target.unlink()
