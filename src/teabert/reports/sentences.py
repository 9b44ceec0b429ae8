"""What each task reads of the same sentences, which are ours and stand in no data set."""

from collections.abc import Sequence
from dataclasses import dataclass

from teabert.predictor import Predictor
from teabert.progress import Progress

SENTENCES = (
    (
        "The hotel was not cheap, but the view made up for it.",
        "We paid a lot for the room and would come back for the view.",
    ),
    ("How do I get red wine out of a white carpet?", "What takes a wine stain off a pale rug?"),
    ("A girl in a green coat is feeding two ducks by the lake.", "Two ducks get bread from a child near the water."),
)
"""Each with another, for tasks that take pairs."""


@dataclass(frozen=True)
class Seen:
    """How much one task reads each word of a sentence, and of the other one where it takes pairs."""

    task: str
    words: tuple[str, ...]
    weights: tuple[float, ...]
    """within each sentence they make 1"""
    second: int
    """where the other sentence begins; the end where there is none"""


def reads(predictor: Predictor, progress: Progress) -> list[list[Seen]]:
    """Every task on every sentence."""
    found = []
    with progress.bar("reading", len(SENTENCES) * len(predictor.tasks)) as advance:
        for pair in SENTENCES:
            mine = []
            for name in predictor.tasks:
                mine.append(read(predictor, name, pair))
                advance(1)
            found.append(mine)
    return found


def read(predictor: Predictor, name: str, pair: tuple[str, str]) -> Seen:
    """One task on a sentence; on both where it takes pairs"""
    two = len(predictor.task(name).texts) == 2
    found = predictor.attention(pair if two else pair[0], name)
    second = len(found.words) if found.second is None else found.second
    weights = (*shared(found.weights[:second]), *shared(found.weights[second:]))
    return Seen(name, tuple(found.words), weights, second)


def shared(weights: Sequence[float]) -> tuple[float, ...]:
    """The same, together 1"""
    total = sum(weights) or 1.0
    return tuple(weight / total for weight in weights)
