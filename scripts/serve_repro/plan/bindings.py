"""Names for what only a launch can know, written as ${NAME} in a plan and filled in once."""

from __future__ import annotations

import string
from collections.abc import Mapping

from serve_repro.errors import UserError

MEANINGS = {
    "RUN_ID": "name of this attempt; it marks each process and container that belongs to it",
    "NODE": "this rank's node: node r of the allocation",
    "RUN_DIR": "folder of this attempt",
    "RANK_DIR": "folder of one rank in it",
    "SCRATCH": "short-lived folder on the node, removed at the end",
    "CACHE_DIR": "folder of compiled code: this attempt's, or the site's for this image and patch set",
    "WEIGHTS_MOUNT": "folder with the model's verified weights, links' targets included",
    "WEIGHTS_PATH": "their place in it, /snapshots/<revision> in hub layout; nothing otherwise",
    "DRAFT_MOUNT": "the same for the draft model's weights",
    "DRAFT_PATH": "and their place in it",
    "IMAGE_DIGEST": "digest that the image was resolved to",
    "IMAGE_FILE": "file of the image on the rank's node",
    "USER_IDS": "user and group that start the rank, as numbers",
    "SERVE_PYTHON": "Python of the serving environment",
    "CLIENT_PYTHON": "Python of the client's environment",
    "EVAL_PYTHON": "Python of the accuracy client's environment",
    "TASK_DIR": "folder of the accuracy task, written for this attempt",
    "PATCH_DIR": "folder of the built patch set",
    "OVERLAY_MOUNTS": "the words that mount patched files over the image's own, any number of them",
    "TRACES_DIR": "folder of made traces",
    "HUB_DIR": "the client's offline hub cache: links to the tokenizer and to fetched traces",
    "MASTER_ADDR": "address of rank 0, as its peers reach it",
    "MASTER_PORT": "free port on rank 0's node, for the rendezvous",
    "API_PORT": "free port on rank 0's node, for the API",
    "HOST_ADDR": "this rank's own address, on the route to its peers",
    "HOST_NAME": "this rank's host name",
    "INTERFACE": "network interface of HOST_ADDR",
}
"""Every name that a plan may use."""


def fill(text: str, values: Mapping[str, str]) -> str:
    """Replace each ${NAME} in a text.

    Raises:
        UserError: a name without a value. A launch never starts with a hole in its command.
    """
    try:
        return string.Template(text).substitute(values)
    except (KeyError, ValueError) as error:
        raise UserError(f"the plan uses a name that has no value: {error}", where=text) from error


def fill_all(words: list[str], values: Mapping[str, str]) -> list[str]:
    """`fill` for each word of a command. ${OVERLAY_MOUNTS} is as many words as its value has lines."""
    filled = []
    for word in words:
        text = fill(word, values)
        filled += text.splitlines() if word == "${OVERLAY_MOUNTS}" else [text]
    return filled


def fill_env(env: Mapping[str, str], values: Mapping[str, str]) -> dict[str, str]:
    """`fill` for each value of an environment."""
    return {name: fill(value, values) for name, value in env.items()}
