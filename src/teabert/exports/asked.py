"""What every export is given and what it gives back."""

from dataclasses import dataclass, field

from teabert.predictor import Predictor
from teabert.progress import Progress
from teabert.tasks import Task


@dataclass(frozen=True)
class Asked:
    """What an export is made from."""

    predictor: Predictor
    chosen: Task | None
    """the one task to write; nothing where the format holds them all"""
    int8: bool
    progress: Progress

    @property
    def task(self) -> Task:
        """The one task to write"""
        assert self.chosen is not None, "a format of one task without a task"
        return self.chosen


@dataclass(frozen=True)
class Loss:
    """What eight bits cost one task."""

    task: str
    metric: str
    """the task's first; nothing where it has no readable dev rows"""
    rows: int
    full: float | None
    """the metric of the fp32 graph on these dev rows"""
    int8: float | None
    """that of the int8 graph"""
    difference: float
    """the largest difference of any output on these rows"""

    @property
    def points(self) -> float | None:
        """The loss in points, hundredths of the metric"""
        return None if self.full is None or self.int8 is None else 100 * (self.full - self.int8)

    def cells(self) -> tuple[str, ...]:
        """For a table"""
        if self.full is None or self.int8 is None:
            return self.task, f"{self.rows} random", "no dev rows", "", "", "", f"{self.difference:.3f}"
        scores = (f"{self.full:.4f}", f"{self.int8:.4f}", f"{self.points:+.2f}")
        return self.task, f"{self.rows} dev", self.metric, *scores, f"{self.difference:.3f}"


@dataclass(frozen=True)
class Written:
    """What the user should hear of an export."""

    notes: list[str]
    losses: list[Loss] = field(default_factory=list)
