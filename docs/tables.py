"""Pieces of HTML for the tables that hooks.py makes; nothing in them is read as Markdown."""

import html
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel

TYPES = {
    "integer": "a whole number",
    "number": "a number",
    "string": "text",
    "boolean": "true or false",
    "array": "a list",
    "object": "a mapping",
}
BOUNDS = {"minimum": "at least", "exclusiveMinimum": "above", "maximum": "at most", "exclusiveMaximum": "below"}


def words(text: object) -> str:
    """Plain text, `code` in backticks"""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(" ".join(str(text).split()), quote=False))


def code(text: object) -> str:
    """A name or value"""
    return f"<code>{html.escape(str(text), quote=False)}</code>"


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Rows of finished cells; on a phone they stand beneath each other, each with its title"""
    head = "".join(f"<th>{title}</th>" for title in titles)
    body = "".join(f"<tr>{_cells(titles, row)}</tr>\n" for row in rows)
    return f'\n<div class="made">\n<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody>\n</table>\n</div>\n'


def _cells(titles: Sequence[str], row: Sequence[str]) -> str:
    return "".join(f'<td data-title="{title}">{cell}</td>' for title, cell in zip(titles, row, strict=True))


def listed(names: Iterable[object]) -> str:
    """Names with commas between"""
    return ", ".join(map(code, names))


def options(model: type[BaseModel], prefix: str = "") -> str:
    """Every key of a settings class: its default, what it takes, what it means"""
    schema = model.model_json_schema()
    rows = []
    for name, field in model.model_fields.items():
        default = "<em>must be given</em>" if field.is_required() else shown(field.get_default(call_default_factory=True))
        taken = accepted(schema["properties"][name])
        rows.append((code(prefix + name), default, taken, words(field.description or "")))
    return table(("key", "default", "accepted", "meaning"), rows)


def shown(value: Any) -> str:
    """A default as YAML has it"""
    if value is None:
        return "<em>left out</em>"
    if isinstance(value, BaseModel):
        return "<em>below</em>"
    return code(value) if isinstance(value, str) and value else code(json.dumps(value, default=str))


def accepted(schema: Mapping[str, Any]) -> str:
    """What a JSON schema lets through, in words"""
    if "enum" in schema:
        return listed(schema["enum"])
    if "const" in schema:
        return code(schema["const"])
    if "anyOf" in schema:
        parts = [accepted(part) for part in schema["anyOf"] if part.get("type") != "null"]
        return " or ".join(dict.fromkeys(parts))
    if "type" not in schema:
        return TYPES["object"]
    bounds = [f"{said} {schema[key]:g}" for key, said in BOUNDS.items() if key in schema]
    return " ".join([TYPES[schema["type"]], ", ".join(bounds)]).strip()
