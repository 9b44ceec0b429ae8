"""Options that injections have in common, and which layers they reach."""

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from teabert.errors import UserError
from teabert.settings import Settings


def _layers(given: Any) -> Any:
    """YAML reads `layers: 3` as a number."""
    text = str(given) if type(given) is int else given
    if not isinstance(text, str) or not re.fullmatch("all|[0-9]{1,4}(-[0-9]{1,4})?", text):
        raise ValueError(
            f"{given!r} names no layers. Write all, one layer such as 3, or from-to such as 4-11; the first is 0"
        )
    first, _, last = text.partition("-")
    if last and int(last) < int(first):
        raise ValueError(f"'{text}' ends before it begins. Write the lower layer first, such as 4-11")
    return text


class Options(Settings):
    """Options of every injection."""

    init: Literal["safe", "paper"] = "safe"
    """safe: start from the pretrained encoder's own answers; paper: start as the paper did."""


class LayerOptions(Options):
    """Options of injections into the encoder's layers."""

    layers: Annotated[str, BeforeValidator(_layers)] = "all"
    """Which layers are conditioned: all, 4-11 or 3; the first is 0, the last named one is included."""
    share_layers: bool = False
    """One set of parameters for all conditioned layers, instead of one for each."""


class Span:
    """The conditioned layers (none, for options that name no layers), and which row of the parameters belongs to each."""

    def __init__(self, options: Settings, layers: int) -> None:
        self.layers = _range(options.layers, layers) if isinstance(options, LayerOptions) else range(layers, layers)
        assert self.layers.stop <= layers, "check_layers comes first"
        self.shared = isinstance(options, LayerOptions) and options.share_layers

    def __contains__(self, layer: int) -> bool:
        return layer in self.layers

    @property
    def rows(self) -> int:
        """How many sets of parameters there are"""
        return 1 if self.shared else len(self.layers)

    def row(self, layer: int) -> int:
        """The layer's set of parameters"""
        return 0 if self.shared else layer - self.layers.start


def _range(text: str, layers: int) -> range:
    if text == "all":
        return range(layers)
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def check_layers(options: Settings, layers: int, method: str) -> None:
    """Refuse layers that the encoder has not."""
    if isinstance(options, LayerOptions) and _range(options.layers, layers).stop > layers:
        raise UserError(
            f"injection ({method}): layers: '{options.layers}' goes beyond the encoder, which has {layers} layers:"
            f" 0-{layers - 1}. Name layers among them, or write 'all'."
        )
