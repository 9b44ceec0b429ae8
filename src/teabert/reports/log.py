"""What a run noted -> curves: losses, scores, examples, learned weights, how often gradients clashed."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from teabert.errors import UserError
from teabert.runs import Run
from teabert.settings import explain

Curves = dict[str, list[tuple[float, float]]]
"""Points by name."""


class Measured(BaseModel):
    """Base of the log's lines; newer versions may write more into them."""

    model_config = ConfigDict(extra="ignore", frozen=True)


Line = TypeVar("Line", bound=Measured)


class LossLine(Measured):
    """What was measured since the line before."""

    step: int
    epoch: int
    loss: dict[str, float]
    examples: dict[str, int]
    weights: dict[str, float] = {}
    conflicts: dict[str, float] = {}
    """of each pair of tasks: in which part of the steps where they met their gradients pointed against each other"""


class Share(Measured):
    """Examples of a task in an epoch."""

    planned: float


class EpochScores(Measured):
    """What the metrics said."""

    tasks: dict[str, dict[str, float]]
    overall: dict[str, float]


class EpochLine(Measured):
    """An epoch's end."""

    epoch: int
    scores: EpochScores
    examples: dict[str, Share]


class BestScores(EpochScores):
    """What the best epoch scored, and on what it was chosen; see the run's scores.json."""

    rows: dict[str, int]
    collapsed: list[str] = []
    epoch: int
    select: str
    aggregate: str
    seconds: float = 0.0


class Subset(Measured):
    """How many rows of its file a task learned from."""

    train: int
    of: int


class Log:
    """All lines of a run's log."""

    def __init__(self, run: Run) -> None:
        place = run.path / "log.jsonl"
        try:
            given = run.log()
        except ValueError as error:
            raise UserError(f"{place} is damaged: {error}.") from None
        self.losses = [_line(LossLine, each, str(place)) for each in given if _event(each) == "loss"]
        self.epochs = [_line(EpochLine, each, str(place)) for each in given if _event(each) == "epoch"]

    def loss(self) -> Curves:
        """Each task's mean loss over steps"""
        return _curves((line.step, line.loss) for line in self.losses)

    def weights(self) -> Curves:
        """Each task's learned weight over steps"""
        return _curves((line.step, line.weights) for line in self.losses)

    def conflicts(self) -> Curves:
        """How often each pair of tasks clashed, over steps"""
        return _curves((line.step, line.conflicts) for line in self.losses)

    def scores(self) -> dict[str, Curves]:
        """Each task's metrics over epochs"""
        tasks = dict.fromkeys(task for line in self.epochs for task in line.scores.tasks)
        return {task: _curves((line.epoch, line.scores.tasks.get(task, {})) for line in self.epochs) for task in tasks}

    def sampling(self) -> dict[str, list[dict[str, float]]]:
        """Of each task and finished epoch: examples planned, and examples that the losses were taken of"""
        found: dict[str, list[dict[str, float]]] = {}
        for line in self.epochs:
            for task, share in line.examples.items():
                taken = sum(each.examples.get(task, 0) for each in self.losses if each.epoch == line.epoch)
                found.setdefault(task, []).append({"epoch": line.epoch, "planned": share.planned, "actual": taken})
        return found


def best_scores(run: Run) -> BestScores | None:
    """The best epoch's scores; nothing before the first epoch ends"""
    given, place = run.scores(), str(run.path / "scores.json")
    unjudged = isinstance(given, Mapping) and not given.keys() - {"seconds"}
    return None if unjudged else _line(BestScores, given, place)


def subsets(run: Run) -> dict[str, Subset]:
    """How many rows each task learned from; nothing where it was not noted"""
    file = run.path / "subsets.json"
    try:
        given = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    except (OSError, ValueError) as error:
        raise UserError(f"{file} is damaged: {error}.") from None
    if not isinstance(given, Mapping):
        raise UserError(f"{file} is damaged: it holds no mapping of tasks.")
    return {task: _line(Subset, facts, str(file)) for task, facts in given.items()}


def _event(line: Any) -> Any:
    return line.get("event") if isinstance(line, Mapping) else None


def _line(kind: type[Line], given: Mapping[str, Any], place: str) -> Line:
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        raise UserError(f"{place} is damaged. {explain(error, kind, 'In it')}") from None


def _curves(lines: Iterable[tuple[float, Mapping[str, float]]]) -> Curves:
    curves: Curves = {}
    for x, values in lines:
        for name, value in values.items():
            curves.setdefault(name, []).append((x, value))
    return curves
