"""HOW the task enters the encoder: one method per file, and INJECTIONS, the one list."""

from teabert.injections.base import Injection, Site

INJECTIONS: dict[str, type[Injection]] = {
    "none": Injection,
}

__all__ = ["INJECTIONS", "Injection", "Site"]
