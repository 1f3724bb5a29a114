"""What editors and readers need from the document types: JSON schemas, and a table of every key."""

from __future__ import annotations

import json
import re
from typing import Any

from pydantic import BaseModel

from serve_repro.errors import UserError

_MARKED = re.compile(r"(<!-- keys:([a-z]+) -->\n).*?(<!-- /keys -->)", re.DOTALL)

_WORDS = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
    "null": "null",
}
_BOUNDS = {"minimum": "at least", "exclusiveMinimum": "above", "maximum": "at most"}


def schema_text(kind: type[BaseModel]) -> str:
    """A document type's JSON schema as the text of a file; equal types give equal bytes."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **kind.model_json_schema()}
    return json.dumps(schema, indent=2, sort_keys=True) + "\n"


def with_tables(text: str, documents: dict[str, type[BaseModel]]) -> str:
    """A text with a fresh table between each `<!-- keys:NAME -->` and `<!-- /keys -->`.

    Raises:
        UserError: a name that is no document, or a document without its markers.
    """
    named = [match[2] for match in _MARKED.finditer(text)]
    if sorted(named) != sorted(documents):
        raise UserError(
            "the markers <!-- keys:NAME --> ... <!-- /keys --> are not as they should be",
            expected=f"one pair for each of {sorted(documents)}",
            found=sorted(named),
        )
    return _MARKED.sub(lambda match: f"{match[1]}{table(documents[match[2]])}{match[3]}", text)


def table(kind: type[BaseModel]) -> str:
    """Every key of a document: its dotted path, type, meaning and default, as a Markdown table."""
    schema = kind.model_json_schema()
    definitions = schema.get("$defs", {})
    lines = ["| key | type | meaning | default |", "|---|---|---|---|"]
    for key, part, required in _keys(schema, definitions, ""):
        default = "required" if required else f"`{json.dumps(part.get('default'))}`"
        # A key that says the same as its section does is described there alone.
        meaning = part.get("description") or definitions[_section(part)]["description"]
        cells = [f"`{key}`", _type(part), meaning.replace("<", "&lt;"), default]
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(lines) + "\n"


def _keys(
    node: dict[str, Any], definitions: dict[str, Any], prefix: str
) -> list[tuple[str, dict[str, Any], bool]]:
    found = []
    for name, part in node["properties"].items():
        key = f"{prefix}{name}"
        found.append((key, part, name in node.get("required", [])))
        listed = "items" in part
        section = _section(part["items"] if listed else part)
        if section is not None:
            found += _keys(definitions[section], definitions, f"{key}[]." if listed else f"{key}.")
    return found


def _section(part: dict[str, Any]) -> str | None:
    """The document type that a part is made of, if it is."""
    for option in [part, *part.get("anyOf", [])]:
        if "$ref" in option:
            return str(option["$ref"].rpartition("/")[2])
    return None


def _type(part: dict[str, Any]) -> str:
    """A part's type in words."""
    if "anyOf" in part:
        return " or ".join(dict.fromkeys(_type(option) for option in part["anyOf"]))
    if "$ref" in part:
        return "section"
    if "enum" in part:
        return "one of " + ", ".join(f"`{value}`" for value in part["enum"])
    if part.get("type") == "array":
        inner = part["items"]
        return "list of sections" if "$ref" in inner else f"list: {_type(inner)}"
    if part.get("type") == "object":
        values = [*part.get("patternProperties", {}).values(), part.get("additionalProperties")]
        named = next((value for value in values if isinstance(value, dict)), None)
        return f"mapping: {_type(named)}" if named else "mapping"
    if part.get("format") == "date":
        return "date"
    word = _WORDS[part["type"]]
    bounds = [f"{said} {part[bound]}" for bound, said in _BOUNDS.items() if bound in part]
    if "multipleOf" in part:
        bounds.append(f"a multiple of {part['multipleOf']}")
    if "pattern" in part:
        bounds.append(f"`{part['pattern']}`")
    return f"{word} ({', '.join(bounds)})" if bounds else word
