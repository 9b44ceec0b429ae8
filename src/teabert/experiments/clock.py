"""How long there is for a table's runs, and which of them can still end in it."""

import time
from collections.abc import Callable, Iterable

from teabert.experiments.jobs import Job

Cost = Callable[[Job], float]
"""A job -> its steps"""


class Clock:
    """Runs are timed as they end; a further one takes as long a step as the slowest run of its row, or of all."""

    def __init__(self, minutes: float | None = None, cost: Cost | None = None) -> None:
        self.end = None if minutes is None else time.monotonic() + 60 * minutes
        self.cost = cost
        self.costs: dict[str, float] = {}
        """steps of a recipe, whatever its seed"""
        self.paces: dict[tuple[str, str, str], float] = {}
        """seconds a step of the runs of a row's part"""

    def prepare(self, jobs: Iterable[Job]) -> None:
        """Find out what they cost, while there is nothing else to do"""
        for job in jobs:
            self.steps(job)

    def steps(self, job: Job) -> float:
        """What a job costs; nothing where nobody asks"""
        if self.cost is not None and job.what not in self.costs:
            self.costs[job.what] = max(1.0, self.cost(job))
        return self.costs.get(job.what, 0.0)

    def left(self) -> float | None:
        """Seconds; nothing where there is no limit"""
        return None if self.end is None else max(0.0, self.end - time.monotonic())

    def heard(self, job: Job, seconds: float) -> None:
        """A run has ended well"""
        if steps := self.steps(job):
            self.paces[_kind(job)] = max(seconds / steps, self.paces.get(_kind(job), 0.0))

    def fits(self, job: Job) -> bool:
        """Whether a run that begins now is expected to end in time; unknown ones are tried"""
        left = self.left()
        if left is None or not self.paces:
            return left is None or left > 0
        pace = self.paces.get(_kind(job), max(self.paces.values()))
        return left > pace * self.steps(job)


def _kind(job: Job) -> tuple[str, str, str]:
    return job.table, job.row, job.part
