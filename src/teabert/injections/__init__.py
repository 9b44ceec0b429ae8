"""HOW the task enters the encoder: one method per file, and INJECTIONS, the one list."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from teabert.errors import UserError
from teabert.injections.activated import Activated
from teabert.injections.adapter import Adapter
from teabert.injections.attention import Attention
from teabert.injections.base import Injection, Site
from teabert.injections.gate import Gate
from teabert.injections.input import Input
from teabert.injections.lora import LoRA
from teabert.injections.options import check_layers
from teabert.injections.pal import ProjectedAttentionLayers
from teabert.injections.prefix import Prefix
from teabert.injections.projected import Projected
from teabert.injections.several import Several
from teabert.methods import Choice, resolve
from teabert.settings import Settings

if TYPE_CHECKING:
    from teabert.encoder import EncoderShape

INJECTIONS: dict[str, type[Injection]] = {
    "none": Injection,
    "input": Input,
    "attention": Attention,
    "projected": Projected,
    "activated": Activated,
    "pal": ProjectedAttentionLayers,
    "lora": LoRA,
    "adapter": Adapter,
    "prefix": Prefix,
    "gate": Gate,
}

Injections = Choice | list[Choice]
"""How a recipe names its injection: one choice, or a list of them."""


def check_injection(choice: Injections) -> dict[str, tuple[type[Injection], Settings]]:
    """The classes and checked options that a recipe names, by method."""
    if not isinstance(choice, list):
        method, config = resolve(INJECTIONS, choice, "injection")
        return {_name(choice): (method, config)}
    if not choice:
        raise UserError("injection: the list is empty. Name at least one method, or write 'injection: none'.")
    found: dict[str, tuple[type[Injection], Settings]] = {}
    for each in choice:
        method, config = resolve(INJECTIONS, each, "injection")
        if _name(each) in found:
            raise UserError(f"injection: '{_name(each)}' is named twice. Name each method once.")
        found[_name(each)] = (method, config)
    return found


def _name(choice: Choice) -> str:
    return choice if isinstance(choice, str) else choice["method"]


def make_injection(choice: Injections, shape: "EncoderShape", tasks: Sequence[str]) -> Injection:
    """The injection that a recipe names, newly initialised."""
    found = check_injection(choice)
    for name, (_, config) in found.items():
        check_layers(config, shape.layers, name)
    made = {name: method(config, shape, tasks) for name, (method, config) in found.items()}
    return Several(made, tasks) if len(made) > 1 else next(iter(made.values()))


__all__ = ["INJECTIONS", "Injection", "Injections", "Site", "check_injection", "make_injection"]
