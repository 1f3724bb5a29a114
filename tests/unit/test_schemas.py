"""Schemas and tables of keys: complete, in step with the types, and true of the shipped files."""

from __future__ import annotations

import datetime
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from pydantic import BaseModel

from serve_repro.errors import UserError
from serve_repro.recipe.load import _models
from serve_repro.recipe.reference import table, with_tables
from write_schemas import DOCUMENTS, files

BASE = Path(__file__).parents[2]
MADE = files(BASE / "config")

SHIPPED = [
    *(("recipe", path) for path in sorted((BASE / "config/recipes").glob("*.yaml"))),
    *(("site", path) for path in sorted((BASE / "config/sites").glob("*.yaml"))),
    *(("settings", path) for path in sorted((BASE / "config").glob("*.yaml"))),
    ("patches", BASE / "patches/series.yaml"),
]


def reachable(kind: type[BaseModel]) -> set[type[BaseModel]]:
    """A document type and every type in it."""
    found = {kind}
    for field in kind.model_fields.values():
        for part in _models(field.annotation):
            if part not in found:
                found |= reachable(part)
    return found


ALL = sorted({part for kind in DOCUMENTS.values() for part in reachable(kind)}, key=lambda k: k.__name__)


@pytest.mark.parametrize("path", MADE, ids=lambda path: path.name)
def test_committed_files_are_what_the_types_say(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == MADE[path], (
        "the document types have changed: run python scripts/write_schemas.py and commit the result"
    )


def test_there_is_no_schema_of_something_else() -> None:
    written = {path for path in MADE if path.suffix == ".json"}
    assert set((BASE / "config/schemas").iterdir()) == written


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_every_key_and_every_section_is_described(kind: type[BaseModel]) -> None:
    assert kind.__doc__
    silent = [name for name, field in kind.model_fields.items() if not field.description]
    assert silent == []
    assert all(
        field.description and field.description.endswith(".") for field in kind.model_fields.values()
    )


def plain(value: Any) -> Any:
    """A YAML document as JSON has it: dates are text."""
    return json.loads(json.dumps(value, default=datetime.date.isoformat))


@pytest.mark.parametrize(("name", "path"), SHIPPED, ids=lambda value: getattr(value, "name", value))
def test_shipped_files_follow_their_schema_and_name_it(name: str, path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    schema = json.loads(MADE[BASE / f"config/schemas/{name}.schema.json"])
    jsonschema.validate(plain(yaml.safe_load(text)), schema)
    named = re.match(r"# yaml-language-server: \$schema=(\S+)\n", text)
    assert named is not None
    assert (path.parent / named[1]).resolve() == BASE / f"config/schemas/{name}.schema.json"


@pytest.mark.parametrize("name", DOCUMENTS)
def test_schemas_are_valid_and_refuse_unknown_keys(name: str) -> None:
    schema = json.loads(MADE[BASE / f"config/schemas/{name}.schema.json"])
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["additionalProperties"] is False
    assert all(part["additionalProperties"] is False for part in schema.get("$defs", {}).values())


def test_the_tables_name_every_key_of_every_section() -> None:
    text = MADE[BASE / "config/README.md"]
    for kind in ALL:
        for name in kind.model_fields:
            assert re.search(rf"^\| `(?:[\w.\[\]]+\.)?{name}` \|", text, re.MULTILINE), f"{kind}: {name}"


@pytest.mark.parametrize(
    "row",
    [
        "| `topology.tensor_parallel` | whole number (at least 1) |",
        "| `replay.dataset.hub` | section or null |",
        "| `serve.env` | mapping: text | Environment of every rank. | `{}` |",
        "| `concurrencies` | list: whole number |",
        "| `speculation.rejection` | one of `standard`, `block`, `synthetic` |",
        "| `model.made.hidden_size` | whole number (at least 64, a multiple of 64) |",
        "| `excludes[].until` | date |",
        "| `patches[].targets` | list of sections |",
        "| `site` | text (`^[a-z0-9][a-z0-9.-]*$`) |",
    ],
)
def test_types_are_told_in_words(row: str) -> None:
    assert row in MADE[BASE / "config/README.md"]


def test_a_bar_in_a_cell_does_not_break_its_row() -> None:
    for name, kind in DOCUMENTS.items():
        for line in table(kind).splitlines():
            assert len(re.findall(r"(?<!\\)\|", line)) == 5, f"{name}: {line}"


@pytest.mark.parametrize(
    "text", ["", "<!-- keys:recipe -->\n<!-- /keys -->\n", "<!-- keys:x -->\n<!-- /keys -->"]
)
def test_a_readme_without_its_markers_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="markers"):
        with_tables(text, DOCUMENTS)


def test_writing_twice_changes_nothing() -> None:
    readme = MADE[BASE / "config/README.md"]
    assert with_tables(readme, DOCUMENTS) == readme
