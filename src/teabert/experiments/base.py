"""What a table of results is: rows, each a recipe and what differs from it, and the columns read off their runs."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from teabert.config import apply_change, find_recipe, read_yaml

Given = str | Mapping[str, Any]
"""A recipe: the name of one that comes with teabert, or the mapping that a recipe file holds."""


@dataclass(frozen=True)
class Row:
    """One line of a table."""

    name: str
    recipe: Given
    changes: tuple[str, ...] = ()
    """as `--set` takes them"""
    paper: Mapping[str, float] = field(default_factory=dict)
    """the paper's numbers by column, where it has some"""
    apart: bool = False
    """every task is trained on its own, from the encoder"""
    judged: Given | None = None
    """a recipe whose other tasks are judged too, through heads that never learned"""
    group: str = ""
    """where it stands in a figure; by default under its own name"""
    series: str = ""
    """what its colour stands for"""
    x: float | None = None
    """its place on the axis of a figure of lines; by default its training rows"""
    against: str = ""
    """the row that its time is related to; by default the table's"""

    def mapping(self) -> dict[str, Any]:
        """The recipe with the row's changes, as parse_recipe takes it"""
        given = given_recipe(self.recipe) | {"name": self.name}
        for change in self.changes:
            apply_change(given, change)
        return given


@dataclass(frozen=True)
class Figure:
    """How a table is drawn: a panel for each column, rows down the side or along a scale."""

    kind: Literal["dots", "lines"]
    columns: tuple[str, ...]
    x_title: str = ""
    x_log: bool = False


@dataclass(frozen=True)
class Table:
    """A table or figure of a paper, or a control that the papers lack."""

    name: str
    title: str
    rows: tuple[Row, ...]
    columns: tuple[str, ...]
    """tasks, whose first metric is shown, and MEASURES"""
    figure: Figure | None = None
    notes: tuple[str, ...] = ()
    against: str = ""
    """the row that times are related to; where it trains its tasks apart, others are said to lose or not by sharing"""
    counted: bool = False
    """its numbers are counted on the models; nothing is trained"""

    def row(self, name: str) -> Row:
        """A row by name"""
        return next(row for row in self.rows if row.name == name)


def given_recipe(recipe: Given) -> dict[str, Any]:
    """A recipe's mapping, to be changed freely"""
    return read_yaml(find_recipe(recipe)) if isinstance(recipe, str) else copy.deepcopy(dict(recipe))
