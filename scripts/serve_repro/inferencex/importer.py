"""One entry of an InferenceX master config (multi-node vLLM, agentic) as the beginning of a recipe.

An entry says what is swept and how one server is spread; flags, patches and load stand in scripts
that it names by convention. So the result is a part of a recipe, with a list of all that a person
must add or that was left behind. What would make another measurement of it is refused.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import yaml
from pydantic import ValidationError

from serve_repro.errors import UserError
from serve_repro.inferencex.entry import Taker
from serve_repro.inferencex.labels import FRAMEWORK, SCENARIO
from serve_repro.recipe.recipe import Recipe

CONNECTORS = {"vllm-simple": "SimpleCPUOffloadConnector"}
"""InferenceX's name of an offload backend -> vLLM's connector."""

_SWITCH = {"true": True, "1": True, "yes": True, "on": True}
_SWITCH |= {"false": False, "0": False, "no": False, "off": False}

_LOOK = (
    "publication",
    "model.revision",
    "image.digest",
    "serve.flags",
    "serve.env",
    "compilation",
    "patches",
    "tuned_gemm",
    "kv_offload.layout",
    "speculation.acceptance_length",
    "speculation.options",
)
"""Keys that may stay empty, and that an entry never tells."""


class Imported(NamedTuple):
    """What became of an entry."""

    recipe: dict[str, Any]
    """The part of a recipe that the entry tells."""
    missing: list[str]
    """Keys of the recipe that must be filled in before it loads."""
    look: list[str]
    """Keys that may be needed, and that an entry does not tell: the publication's scripts do."""
    assumed: list[str]
    """What was filled in by InferenceX's conventions, and should be looked at."""
    left: list[str]
    """What of the entry is not in the recipe, with its value."""


def read_entry(name: str, value: Any) -> Imported:
    """Turn one entry into what a recipe can hold of it.

    Args:
        name: the entry's key in the master config; it becomes the recipe's name.
        value: what stands under it.

    Raises:
        UserError: no multi-node vLLM agentic entry, a parallelism that no recipe can say, or a value
            that no recipe takes.
    """
    assumed: list[str] = []
    left: list[str] = []
    entry = Taker(value, name)
    entry.need("framework", FRAMEWORK, "only vLLM is served")
    entry.need("multinode", True, "only multi-node entries are read")
    entry.need("disagg", False, "one server prefills and decodes", default=False)
    scenario = entry.part("scenarios").only(SCENARIO)
    space = scenario.only("search-space")
    prefill, decode = space.part("prefill"), space.part("decode")
    recipe: dict[str, Any] = {
        "name": name,
        "title": f"{name}, from InferenceX",
        "accelerator": _accelerator(entry, assumed, left),
        "model": _model(entry, assumed),
        "image": {"reference": entry.take("image"), "digest": None},
        "topology": _topology(prefill, decode, left),
        "serve": _serve(prefill, left),
    }
    offload = _offload(scenario, space, assumed)
    if offload is not None:
        recipe["kv_offload"] = offload
    speculation = space.take("spec-decoding", "none")
    if speculation != "none":
        recipe["speculation"] = {"label": speculation}
    concurrencies = space.take("conc-list", None)
    if concurrencies is not None:
        recipe["concurrencies"] = concurrencies
    _check_prefix(entry, name, left)
    left += [f"{place}: {found!r}" for place, found in entry.left()]
    absent = [key for key in ("kv_offload", "speculation") if key not in recipe]
    return Imported(
        recipe=recipe,
        missing=_missing(recipe, name),
        look=[key for key in _LOOK if key.split(".")[0] not in absent],
        assumed=assumed,
        left=left,
    )


def render(imported: Imported) -> str:
    """The recipe as YAML, with all that is to be done in comments above it."""
    lines = ["# yaml-language-server: $schema=../schemas/recipe.schema.json"]
    for title, entries in (
        ("Fill in before it loads", imported.missing),
        ("Not told by an entry, look into the publication's scripts", imported.look),
        ("Filled in by convention, check", imported.assumed),
        ("In the entry, and not in this recipe", imported.left),
    ):
        if entries:
            lines += [f"# {title}:", *(f"#   {entry}" for entry in entries)]
    text = yaml.safe_dump(imported.recipe, sort_keys=False, allow_unicode=True)
    return "\n".join([*lines, text])


def _accelerator(entry: Taker, assumed: list[str], left: list[str]) -> str:
    runner = str(entry.take("runner"))
    accelerator = runner.removeprefix("cluster:").split("-")[0]
    assumed.append(f"accelerator: {accelerator}, by the first word of the runner")
    left.append(f"{entry.at('runner')}: {runner!r}; where it runs is told by a site, config/sites/")
    return accelerator


def _model(entry: Taker, assumed: list[str]) -> dict[str, Any]:
    model = entry.take("model")
    assumed.append(f"model.served_name: {model}, the hub id")
    return {
        "id": model,
        "revision": None,
        "served_name": model,
        "precision": entry.take("precision"),
    }


def _topology(prefill: Taker, decode: Taker, left: list[str]) -> dict[str, Any]:
    """One server: its prefill worker, and no decode worker."""
    prefill.need("num-worker", 1, "one server")
    decode.need("num-worker", 0, "one server prefills and decodes")
    prefill.need("ep", 1, "expert parallelism is no key of a recipe", default=1)
    prefill.need("dp-attn", False, "data parallelism is no key of a recipe", default=False)
    for key in ("dcp-size", "pcp-size"):
        prefill.need(key, 1, "context parallelism is no key of a recipe", default=1)
    for key, value in decode.rest().items():
        left.append(f"{decode.at(key)}: {value!r}; there is no decode worker")
    return {"tensor_parallel": prefill.take("tp"), "pipeline_parallel": prefill.take("pp", 1)}


def _serve(prefill: Taker, left: list[str]) -> dict[str, Any]:
    """What the settings of the serve script say that a recipe has keys for."""
    told: dict[str, Any] = {}
    place = prefill.at("additional-settings")
    for setting in prefill.take("additional-settings", []):
        name, _, value = str(setting).partition("=")
        if name == "ASYNC_SCHEDULING" and value.lower() in _SWITCH:
            told["async_scheduling"] = _SWITCH[value.lower()]
        elif name == "ASYNC_SCHEDULING" and value.lower() in ("", "auto"):
            told["async_scheduling"] = None
        else:
            left.append(f"{place}: {setting!r}; a variable of the publication's serve script")
    return told


def _offload(scenario: Taker, space: Taker, assumed: list[str]) -> dict[str, Any] | None:
    kind = space.take("kv-offloading", "none")
    if kind == "none":
        return None
    if kind != "dram":
        raise UserError(
            "cannot be a recipe", where=space.at("kv-offloading"), expected="none or dram", found=kind
        )
    backend = space.part("kv-offload-backend").take("name")
    told = {"backend_name": backend, "dram_utilization": scenario.take("dram-utilization")}
    if backend in CONNECTORS:
        told["connector"] = CONNECTORS[backend]
        assumed.append(f"kv_offload.connector: {CONNECTORS[backend]}, what {backend} stands for")
    return told


def _check_prefix(entry: Taker, name: str, left: list[str]) -> None:
    """The prefix is no key of a recipe: an export takes it from the recipe's name."""
    prefix = entry.take("model-prefix", None)
    if prefix is not None and prefix != name.split("-")[0]:
        left.append(f"{entry.at('model-prefix')}: {prefix!r}; exports take the name's first word")


def _missing(recipe: dict[str, Any], name: str) -> list[str]:
    """Keys that the recipe's own type asks for.

    Raises:
        UserError: a value of the entry is one that no recipe takes.
    """
    try:
        Recipe.model_validate(recipe)
    except ValidationError as error:
        places = [(".".join(map(str, told["loc"])), told) for told in error.errors()]
        wrong = [f"{place}: {told['msg']}" for place, told in places if told["type"] != "missing"]
        if wrong:
            raise UserError("; ".join(wrong), where=name) from error
        return [place for place, _ in places]
    return []
