"""The errors a user can cause: each says what was given, what is accepted and what to do."""

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """Something the user gave cannot be used; the command line prints it as one message and exits with 2."""


def nearest(given: str, known: Iterable[str]) -> str:
    """A hint naming the nearest known word, or nothing."""
    close = difflib.get_close_matches(given, list(known), n=1, cutoff=0.6)
    return f" Did you mean '{close[0]}'?" if close else ""


def unknown(what: str, given: str, known: Iterable[str], advice: str = "") -> UserError:
    """The error for a name that is on no list: what was given, the nearest, the whole list."""
    names = sorted(known)
    message = f"Unknown {what} '{given}'.{nearest(given, names)} Known: {', '.join(names)}."
    return UserError(f"{message} {advice}".rstrip())


def missing_extra(package: str, extra: str, purpose: str) -> UserError:
    """The error for an optional package that is not installed."""
    return UserError(f"{purpose} needs {package}, which is not installed. Install it with: pip install 'teabert[{extra}]'")
