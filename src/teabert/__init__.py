"""Teabert: one BERT, many tasks. `train` a recipe, `load` a run; everything heavy is imported when it is first used."""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from teabert.config import Recipe, load_recipe, parse_recipe
    from teabert.predictor import Predictor, load
    from teabert.tasks import Task
    from teabert.training import train

_HOMES = {
    "Recipe": "teabert.config",
    "load_recipe": "teabert.config",
    "parse_recipe": "teabert.config",
    "Predictor": "teabert.predictor",
    "load": "teabert.predictor",
    "Task": "teabert.tasks",
    "train": "teabert.training",
}

__all__ = ["Predictor", "Recipe", "Task", "__version__", "load", "load_recipe", "parse_recipe", "train"]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for: torch alone takes seconds."""
    if name not in _HOMES:
        raise AttributeError(f"module 'teabert' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """The public names."""
    return __all__
