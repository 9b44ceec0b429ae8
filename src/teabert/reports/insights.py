"""Sections that look inside: confusions, attention over words, task-vector similarity, gradient conflict."""

import math
from collections.abc import Sequence

import numpy as np

from teabert.reports.charts import lines
from teabert.reports.judging import LEVELS, Confusion
from teabert.reports.markup import Html, cards, details, heat, join, note, number, table, tag
from teabert.reports.numbers import Numbers
from teabert.reports.sentences import SENTENCES, Seen

LARGEST = 12
"""Labels that a matrix shows at most; of more, the commonest confusions are listed."""
COMMONEST = 20
PAIRS = 6
"""Pairs of tasks that one chart can tell apart."""


def confusion(numbers: Numbers) -> list[object]:
    """A matrix for each task whose dev rows could be read"""
    if numbers.judged is None:
        return [note("The dev rows could not be read here.")]
    shown = []
    for name, matrices in numbers.judged.confusion.items():
        task = numbers.tasks[name]
        said = f"Each score counts to the nearest of {LEVELS} levels." if task.kind == "score" else ""
        drawn = [_matrix(f"{name}: {of}" if of != name else name, each) for of, each in matrices.items()]
        shown.append(join(tag("h3", name), *drawn, note(said) if said else ""))
    told = (
        "Down: what is true. Across: what was predicted. The shade is the part of its row. Found: of the rows of a label,"
        " the part that was recognised; right: of those predicted so, the part that was true."
    )
    return [cards(*shown, wide=True), note(told)]


def _matrix(title: str, confusion: Confusion) -> Html:
    if len(confusion.labels) > LARGEST:
        return _commonest(title, confusion)
    counts = confusion.counts
    truths, predictions = counts.sum(axis=1), counts.sum(axis=0)
    rows: list[Sequence[object]] = [
        (label, *(heat(number(count, 0), count / max(whole, 1)) for count in row), _part(row[place], whole))
        for place, (label, row, whole) in enumerate(zip(confusion.labels, counts.tolist(), truths.tolist(), strict=True))
    ]
    right = [_part(counts[place, place], each) for place, each in enumerate(predictions.tolist())]
    rows.append(("right", *right, _part(int(np.trace(counts)), int(counts.sum()))))
    return table(f"Truth and prediction: {title}", ("true", *confusion.labels, "found"), rows)


def _commonest(title: str, confusion: Confusion) -> Html:
    wrong = confusion.counts - np.diag(np.diag(confusion.counts))
    order = np.argsort(-wrong, axis=None, kind="stable")[:COMMONEST]
    places = [(int(place) // len(wrong), int(place) % len(wrong)) for place in order]
    rows = [
        (confusion.labels[true], confusion.labels[said], number(int(wrong[true, said]), 0), number(int(truth), 0))
        for true, said in places
        if wrong[true, said] and (truth := confusion.counts[true].sum())
    ]
    caption = f"The commonest confusions of {len(confusion.labels)} labels: {title}"
    return table(caption, ("true", "predicted", "rows", "of"), rows, words=2)


def _part(some: int, whole: int) -> str:
    return number(some / whole if whole else math.nan, 2)


def attention(numbers: Numbers) -> list[object]:
    """The same sentences under each task, side by side"""
    if not numbers.attention:
        return [note("There is no model to ask.")]
    shown: list[object] = []
    for (sentence, other), seen in zip(SENTENCES, numbers.attention, strict=True):
        pairs = any(each.second < len(each.words) for each in seen)
        shown.append(tag("h3", f"“{sentence}”"))
        shown.append(note(f"Tasks that take pairs compare it with: “{other}”") if pairs else "")
        shown.append(cards(*(join(tag("h4", each.task), _sentence(each, 0), _sentence(each, 1)) for each in seen)))
        tables = [*_weights(sentence, seen, 0), *_weights(other, seen, 1)]
        shown.append(details("Numbers", tag("div", *tables, class_="card")))
    told = (
        "The stronger the shade, the more attention goes to the word: that of [CLS] where the task reads its first token,"
        " of all tokens where it reads their mean; in the encoder's last layer, or in the task's own attention where it has"
        " one. Within a sentence the parts make 1. Attention shows what is read, not why an answer was given."
    )
    return [note(told), *shown]


def _sentence(seen: Seen, which: int) -> Html:
    words = _words(seen, which)
    if not words:
        return Html("")
    most = max(weight for _, weight in words)
    marked = [tag("span", word, style=f"--heat:{weight / most:.3f}", title=number(weight)) for word, weight in words]
    spaced = [part for word, each in zip(words, marked, strict=True) for part in (_space(word[0]), each)]
    return tag("p", *spaced, class_="words")


def _space(word: str) -> str:
    """What stands before a word: nothing before a full stop"""
    return " " if any(sign.isalnum() for sign in word) else ""


def _words(seen: Seen, which: int) -> list[tuple[str, float]]:
    """Words and weights of the first or the other sentence"""
    place = slice(0, seen.second) if which == 0 else slice(seen.second, None)
    return list(zip(seen.words[place], seen.weights[place], strict=True))


def _weights(sentence: str, seen: Sequence[Seen], which: int) -> list[Html]:
    """Words down, tasks across; tasks that see other words, or cut them, in a table of their own"""
    groups: dict[tuple[str, ...], dict[str, list[float]]] = {}
    for each in seen:
        if words := _words(each, which):
            known = tuple(word.casefold() for word, _ in words)
            groups.setdefault(known, {})[each.task] = [weight for _, weight in words]
    return [
        table(
            f"Attention on “{sentence}”: {', '.join(mine)}",
            ("word", *mine),
            [
                (word, *(heat(number(each[place]), each[place] / max(each)) for each in mine.values()))
                for place, word in enumerate(words)
            ],
        )
        for words, mine in groups.items()
    ]


def similarity(numbers: Numbers) -> list[object]:
    """Cosines between the tasks' own parts of the injection"""
    found = numbers.similarity
    if found is None:
        return (
            [note("No task has numbers of its own in the encoder: there is nothing to compare.")] if numbers.loaded else []
        )
    rows = [
        (task, *(heat(number(value, 2), value) for value in mine), number(size, 2))
        for task, mine, size in zip(found.tasks, found.whole, found.sizes, strict=True)
    ]
    whole = table("Cosine between the tasks' vectors", ("task", *found.tasks, "length"), rows)
    layers = {pair.replace("/", " and "): points for pair, points in found.layers.items()}
    chart = lines("Cosine, layer by layer", layers, "layer") if len(layers) <= PAIRS else Html("")
    told = (
        "A task's vector is all that belongs to it alone in the injection. 1: the same direction, 0: nothing in common,"
        " below: opposite. A part that never left zero has no direction. For matrices, as in LoRA, other factors can do the"
        " same, so a low cosine there means little."
    )
    return [cards(*(each for each in (whole, chart) if each), wide=True), note(told)]


def conflict(numbers: Numbers) -> list[object]:
    """How often gradients pointed against each other, and the weights that were learned"""
    clashes, weights = numbers.log.conflicts(), numbers.log.weights()
    shown: list[object] = []
    if clashes:
        named = {pair.replace("/", " and "): points for pair, points in clashes.items()}
        pairs = dict(sorted(named.items(), key=lambda item: -_mean(item[1])))
        rows = [(pair, number(100 * _mean(points), 1), number(100 * points[-1][1], 1)) for pair, points in pairs.items()]
        titles = ("tasks", "all, %", "at the end, %")
        often = table("Steps in which two tasks' gradients pointed against each other", titles, rows)
        worst = dict(list(pairs.items())[:PAIRS])
        shown.append(join(often, lines("Part of the steps with a conflict", worst, "step", low=0.0, digits=2)))
    if weights:
        shown.append(lines("What each task's loss is multiplied by, learned", weights, "step", low=0.0))
    if shown:
        told = "Two gradients conflict where their product is below zero. All: the mean of the log's lines."
        return [cards(*shown, wide=True), note(told) if clashes else ""]
    return [note("Not watched. Train with train.surgery: watch to see it.")] if len(numbers.tasks) > 1 else []


def _mean(points: Sequence[tuple[float, float]]) -> float:
    return sum(value for _, value in points) / len(points)
