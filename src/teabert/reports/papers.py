"""What the two papers report on dev, for the tasks that are theirs, and what must be said of an encoder beside it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from teabert.catalogue import ENCODERS, KnownEncoder
from teabert.config import Recipe
from teabert.tasks import TASKS, Task

ORDER = ("sst", "quora", "sts")
PAPERS_ENCODER = "bert-base-uncased"


@dataclass(frozen=True)
class Reported:
    """One row of a paper's table."""

    paper: str
    row: str
    mode: str
    scores: tuple[float, float, float]
    """SST accuracy, Quora accuracy, STS Pearson"""

    def of(self, task: str) -> float:
        """The number for a task"""
        return self.scores[ORDER.index(task)]


TEABERT, ATTENTION = "TEA-BERT", "Task-specific attention"
REPORTED = (
    Reported(TEABERT, "baseline, all tasks", "finetune", (0.378, 0.692, 0.483)),
    Reported(TEABERT, "input, its best mean", "finetune", (0.483, 0.706, 0.627)),
    Reported(ATTENTION, "first token", "finetune", (0.504, 0.595, 0.587)),
    Reported(ATTENTION, "mean pooling", "finetune", (0.515, 0.561, 0.854)),
    Reported(ATTENTION, "task attention", "finetune", (0.509, 0.843, 0.822)),
    Reported(ATTENTION, "first token", "frozen", (0.389, 0.401, 0.298)),
    Reported(ATTENTION, "mean pooling", "frozen", (0.460, 0.386, 0.643)),
    Reported(ATTENTION, "task attention", "frozen", (0.253, 0.469, 0.251)),
)


def is_papers(task: Task) -> bool:
    """Whether a task is one of the papers', on their files"""
    return task.name in ORDER and task.files == TASKS[task.name].files


def reported(recipe: Recipe, task: Task) -> list[Reported]:
    """The papers' rows for a task, trained the way the run was; none for tasks of others"""
    return [row for row in REPORTED if row.mode == recipe.train.mode] if is_papers(task) else []


def encoder_of(recipe: Recipe, facts: Mapping[str, Any]) -> KnownEncoder | None:
    """The encoder that a run started from, where it is known: by its name, or by the checksum of its weights"""
    started = facts.get("encoder")
    checksum = started.get("sha256") if isinstance(started, Mapping) else None
    for known in ENCODERS.values():
        if recipe.encoder in (known.name, known.hub) or (checksum and checksum == known.sha256):
            return known
    return None


def encoder_name(recipe: Recipe, known: KnownEncoder | None) -> str:
    """How the encoder is called: of a folder its last name only"""
    if known is not None:
        return known.hub.split("/")[-1]
    folder = Path(recipe.encoder).expanduser()
    return f"{folder.name} (a local folder)" if folder.is_dir() or folder.is_absolute() else recipe.encoder


def encoder_note(recipe: Recipe, known: KnownEncoder | None) -> str:
    """What must be said of scores that came from this encoder"""
    name = encoder_name(recipe, known)
    if known is not None and known.name == PAPERS_ENCODER:
        return f"The encoder is {name}, as in both papers."
    seen = known.tuned_on if known is not None and known.tuned_on != "unknown" else "not known to teabert"
    return (
        f"The encoder is {name}, not {PAPERS_ENCODER}, which both papers used: these scores do not say what that one would"
        f" reach. What {name} was tuned on before: {seen}."
    )


def quora_note(recipe: Recipe, known: KnownEncoder | None) -> str | None:
    """A warning where the encoder has seen the questions that the run is judged on"""
    if known is None or "Quora" not in known.tuned_on or "quora" not in recipe.tasks:
        return None
    return f"{encoder_name(recipe, known)} was tuned on Quora questions: its score on quora is higher for that."
