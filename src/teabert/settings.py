"""Strict settings: mappings (YAML, --set) in, frozen checked objects out; errors in words, with the nearest key."""

import re
from collections.abc import Mapping, Sequence
from reprlib import Repr
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from teabert.errors import UserError, nearest

Model = TypeVar("Model", bound=BaseModel)

WIDEST, DEEPEST = 65_536, 100
"""The most numbers in a row, and the most layers, that a method's options may ask for; beyond lies a mistyped number."""


class Settings(BaseModel):
    """Base of everything that is configured: frozen, no unknown keys, help text beneath each field."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)


def parse(model: type[Model], given: Mapping[str, Any], where: str) -> Model:
    """Check a mapping against a settings class; `where` names the file or key for the message."""
    try:
        return model.model_validate(dict(given))
    except ValidationError as error:
        raise UserError(explain(error, model, where)) from None


def explain(error: ValidationError, model: type[BaseModel], where: str) -> str:
    """One line per problem: the key, what was given, what is accepted."""
    ways: dict[str, list[str]] = {}  # a key that may be written in several ways has a problem for each
    for problem in error.errors():
        line, wanted = _line(problem, model)
        ways.setdefault(line, []).extend(wanted)
    return "\n".join(f"{where}: {line}{_either(wanted)}" for line, wanted in ways.items())


def _either(ways: Sequence[str]) -> str:
    """a, b or c."""
    *others, last = dict.fromkeys(ways) or [""]
    return f"{', '.join(others)} or {last}." if others else last and f"{last}."


def shown(value: Any) -> str:
    """What was given, shortened where it is long: YAML's aliases can make it endless"""
    short = Repr()
    short.maxlevel, short.maxstring, short.maxother = 3, 100, 100
    return short.repr(value)


OF_PYDANTIC = re.compile(
    r"(str|int|float|bool|constrained-.*|function-.*|(dict|list|tuple|union|tagged-union|literal)\[.*)"
)
"""Parts of a problem's place that are no keys: which of several ways to write a value was tried."""
SHOULD = "Input should be "
IN_WORDS = {"a valid dictionary": "a mapping", "a valid string": "text", "a valid list": "a list"}


def _line(problem: Any, model: type[BaseModel]) -> tuple[str, list[str]]:
    """What is wrong with a key; and apart from it, where what was given does not fit, what would"""
    place = [str(part) for part in problem["loc"] if not OF_PYDANTIC.fullmatch(str(part))]
    key = ".".join(place)
    kind = problem["type"]
    if kind == "extra_forbidden":
        known = _fields_at(model, place[:-1])
        accepted = f" Accepted: {', '.join(known)}." if known else ""
        return f"unknown key '{key}'.{nearest(place[-1], known)}{accepted}", []
    if kind == "missing":
        return f"'{key}' is missing; it must be given.", []
    message = problem["msg"].removeprefix("Value error, ")
    if kind == "value_error":
        named = not key or re.match(rf"{re.escape(key)}[.: ]", message)
        return message if named else f"{key}: {message}", []
    start = f"{key}{': ' * bool(key)}{shown(problem['input'])} does not fit: "
    if not message.startswith(SHOULD):
        return f"{start}{message[0].lower()}{message[1:]}.", []
    wanted = re.sub(r" or instance of \w+", "", message.removeprefix(SHOULD))
    return f"{start}{SHOULD.lower()}", [IN_WORDS.get(wanted, wanted)]


def _fields_at(model: type[BaseModel], place: list[str]) -> list[str]:
    """The keys accepted at a place such as train.batch; empty where the place is no settings object."""
    current: Any = model
    parts = iter(place)
    for part in parts:
        field = getattr(current, "model_fields", {}).get(part)
        if field is None:
            return []
        options = [field.annotation, *getattr(field.annotation, "__args__", ())]
        models = [option for option in options if isinstance(option, type) and issubclass(option, BaseModel)]
        if not models:
            return []
        current = models[0]
        if getattr(field.annotation, "__origin__", None) is dict:
            next(parts, None)  # a name of the user's own
    return list(current.model_fields)
