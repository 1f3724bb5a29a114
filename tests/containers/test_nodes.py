"""The simulated nodes themselves: what the other tests stand on."""

from __future__ import annotations

import pytest

from .conftest import Image


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
