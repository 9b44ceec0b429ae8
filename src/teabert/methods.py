"""Choosing from a list of methods: a recipe gives `name` or `{method: name, option: value}`; out come class and options."""

from collections.abc import Mapping
from typing import Any

from teabert.errors import UserError, unknown
from teabert.settings import Settings, parse

Choice = str | dict[str, Any]
"""How a recipe names a method: its name alone, or with options."""


def as_mapping(choice: Choice) -> dict[str, Any]:
    """A choice in its long form"""
    return {"method": choice} if isinstance(choice, str) else dict(choice)


def resolve(methods: Mapping[str, Any], choice: Choice, what: str) -> tuple[Any, Settings]:
    """The class that a choice names, and its checked options; `what` is the recipe key, for messages."""
    given = as_mapping(choice)
    name = given.pop("method", None)
    if not isinstance(name, str):
        raise UserError(f"{what}: say which method, as a name or as {{method: NAME, ...}}. Known: {', '.join(methods)}.")
    if name not in methods:
        raise unknown(what.rpartition(".")[2], name, methods)
    method = methods[name]
    return method, parse(method.Config, given, f"{what} ({name})")
