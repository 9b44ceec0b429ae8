"""The rows of any data set on the hub, by name, through the package `datasets`; no code from the hub is ever run."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from teabert.errors import UserError, missing_extra

PREFIX = "hub:"
SPLITS = {"train": "train", "dev": "validation", "test": "test"}
"""Our names of the splits -> the hub's."""


def hub_rows(place: str, split: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """(number, cells by column) of every row; place is hub:ORG/NAME or hub:ORG/NAME:CONFIG."""
    named = re.fullmatch(rf"{PREFIX}([\w-][\w.-]*(?:/[\w-][\w.-]*)?)(?::([\w.-]+))?", place, re.ASCII)
    if named is None:
        raise UserError(f"'{place}' does not name a data set. Write hub:ORG/NAME or hub:ORG/NAME:CONFIG.")
    repo, config = named.groups()
    if Path(repo).exists():  # `datasets` would take that one
        raise UserError(f"'{place}' means the hub, but {repo} stands in {Path.cwd()}. Run from another folder.")
    try:
        import datasets
    except ImportError:
        raise missing_extra("datasets", "datasets", f"Reading '{place}'") from None
    # before version 4, `datasets` may ask whether to run a repository's script
    answer: dict[str, Any] = {} if int(datasets.__version__.split(".")[0]) >= 4 else {"trust_remote_code": False}
    try:
        rows = datasets.load_dataset(repo, config, split=SPLITS[split], **answer)
    except Exception as error:  # whatever `datasets` and what it stands on may raise
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        advice = "Check the name, its config and its splits; a private one needs 'hf auth login' first."
        raise UserError(f"Cannot read {SPLITS[split]} of {place}: {reason} ({type(error).__name__}). {advice}") from None
    yield from enumerate(rows, 1)
