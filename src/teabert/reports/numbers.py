"""All that a run's page is made of: what the folder says, and what its best model says of dev rows and our sentences."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from teabert.config import Recipe
from teabert.errors import UserError
from teabert.predictor import Predictor, load
from teabert.progress import Progress
from teabert.reports.comparing import Similarity, similarity
from teabert.reports.judging import Judged, judge_dev, read_dev
from teabert.reports.log import BestScores, Log, Subset, best_scores, subsets
from teabert.reports.papers import reported
from teabert.reports.sentences import Seen, reads
from teabert.runs import Run
from teabert.tasks import Task


@dataclass(frozen=True)
class Score:
    """A value with its interval, where dev rows could be resampled."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Numbers:
    """A run in numbers."""

    recipe: Recipe
    facts: Mapping[str, Any]
    """seed, versions, machine, encoder"""
    log: Log
    best: BestScores | None
    subsets: Mapping[str, Subset]
    """which part of each task's rows it learned from"""
    tasks: Mapping[str, Task]
    """those added later included"""
    judged: Judged | None
    """nothing where there is no model, or no dev rows can be read"""
    similarity: Similarity | None
    attention: list[list[Seen]]
    loaded: bool
    """whether there is a model"""

    @property
    def unread(self) -> list[str]:
        """Tasks whose dev rows could not be read"""
        known = self.judged.scores.tasks if self.judged else {}
        return [name for name in self.tasks if name not in known]

    def scores(self) -> dict[str, dict[str, Score]]:
        """Every metric of every task: of the dev rows now, else what training noted"""
        noted = self.best.tasks if self.best else {}
        found = {name: {metric: Score(value) for metric, value in metrics.items()} for name, metrics in noted.items()}
        if self.judged:
            for name, metrics in self.judged.scores.tasks.items():
                spans = self.judged.intervals[name]
                found[name] = {metric: Score(value, *spans[metric]) for metric, value in metrics.items()}
        return {name: found[name] for name in self.tasks if name in found}

    def overall(self) -> dict[str, Score]:
        """Both overall scores"""
        if self.judged and not self.unread:
            return {how: Score(value, *self.judged.overall[how]) for how, value in self.judged.scores.overall.items()}
        return {how: Score(value) for how, value in self.best.overall.items()} if self.best else {}

    def rows(self, task: str) -> int | None:
        """How many rows a task's scores are of"""
        if task not in self.unread and self.judged:
            return self.judged.scores.rows[task]
        return self.best.rows.get(task) if self.best else None

    def collapsed(self) -> list[str]:
        """Tasks whose rows all got one answer"""
        now = list(self.judged.scores.collapsed) if self.judged else []
        noted = [name for name in self.best.collapsed if name in self.unread] if self.best else []
        return [*now, *noted]

    def as_json(self) -> dict[str, Any]:
        """For --json; what is not a number is null."""
        confusion = self.judged.confusion if self.judged else {}
        content = {
            "run": self.recipe.name,
            "facts": self.facts,
            "trained on": {task: subset.model_dump() for task, subset in self.subsets.items()},
            "rows": {task: self.rows(task) for task in self.scores()},
            "scores": {task: {name: asdict(score) for name, score in mine.items()} for task, mine in self.scores().items()},
            "overall": {how: asdict(score) for how, score in self.overall().items()},
            "unread": self.unread,
            "papers": {
                name: [asdict(row) | {"scores": row.of(name)} for row in reported(self.recipe, task)]
                for name, task in self.tasks.items()
            },
            "curves": {"loss": self.log.loss(), "scores": self.log.scores()},
            "confusion": {
                task: {of: {"labels": each.labels, "counts": each.counts.tolist()} for of, each in mine.items()}
                for task, mine in confusion.items()
            },
            "sampling": self.log.sampling(),
            "similarity": asdict(self.similarity) if self.similarity else None,
            "conflicts": self.log.conflicts(),
            "weights": self.log.weights(),
            "attention": [[asdict(seen) for seen in each] for each in self.attention],
        }
        return {key: _plain(value) for key, value in content.items()}


def gather(run: Run, progress: Progress) -> Numbers:
    """Everything that can be known of a run here."""
    known = (run.recipe, run.facts(), Log(run), best_scores(run), subsets(run))
    try:
        predictor = load(run.path)
    except UserError as error:
        progress.note(f"no model: {error}")
        return Numbers(*known, run.recipe.tasks, None, None, [], loaded=False)
    judged = _judged(predictor, progress)
    seen, alike = reads(predictor, progress), similarity(predictor.model)
    return Numbers(*known, predictor.tasks, judged, alike, seen, loaded=True)


def _judged(predictor: Predictor, progress: Progress) -> Judged | None:
    examples = read_dev(predictor, progress)
    return judge_dev(predictor, examples, progress) if examples else None


def _plain(value: Any) -> Any:
    """For JSON, which knows no not-a-number"""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value
