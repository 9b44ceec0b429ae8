"""A run's numbers -> its page, from the scores down to how it was made."""

from collections.abc import Sequence

from teabert.injections import Injections
from teabert.methods import as_mapping
from teabert.reports import insights
from teabert.reports.charts import Ranged, intervals, lines
from teabert.reports.judging import COVERED, RESAMPLES
from teabert.reports.markup import MISSING, Html, cards, facts, join, note, number, page, safe, table, tag
from teabert.reports.numbers import Numbers, Score
from teabert.reports.papers import encoder_name, encoder_note, encoder_of, quora_note, reported
from teabert.tasks import Task


def run_page(numbers: Numbers) -> str:
    """The whole page."""
    sections = {
        ("scores", "Scores"): scores(numbers),
        ("papers", "Beside the papers"): papers(numbers),
        ("learning", "Learning curves"): learning(numbers),
        ("confusion", "What is taken for what"): insights.confusion(numbers),
        ("attention", "What each task reads"): insights.attention(numbers),
        ("similarity", "How alike the tasks are"): insights.similarity(numbers),
        ("conflict", "Gradient conflict"): insights.conflict(numbers),
        ("sampling", "Planned and actual sampling"): sampling(numbers),
        ("made", "How it was made"): made(numbers),
    }
    return page(numbers.recipe.name, lead(numbers), warnings(numbers), sections)


def lead(numbers: Numbers) -> Html:
    """The first thing to read: what this is, and how good"""
    count = len(numbers.tasks)
    what = f"One encoder for {count} tasks: " if count > 1 else "One encoder for one task: "
    said = tag("p", what, tag("strong", ", ".join(numbers.tasks)), class_="lead")
    overall = numbers.overall().get("mean")
    if overall is None:
        return said
    span = "" if overall.low is None else f" ({COVERED:.0%} interval {number(overall.low)} to {number(overall.high)})"
    mean = "mean of the tasks' first metrics" if count > 1 else "score"
    return join(said, tag("p", tag("strong", number(overall.value), class_="big"), f" {mean}{span}", class_="headline"))


def warnings(numbers: Numbers) -> list[object]:
    """What must be known before the numbers are believed"""
    known = encoder_of(numbers.recipe, numbers.facts)
    found: list[object] = []
    if numbers.best is None:
        found.append("No epoch of this run was finished: there are no scores yet.")
    elif not numbers.loaded:
        found.append("The model could not be loaded here; the scores are those noted in training.")
    elif numbers.unread:
        names = ", ".join(numbers.unread)
        found.append(f"The dev rows of {names} could not be read here: no intervals, no confusion matrix for them.")
    found += [f"{name}: every row got the same prediction." for name in numbers.collapsed()]
    if quora := quora_note(numbers.recipe, known):
        found.append(quora)
    return found


# scores


def scores(numbers: Numbers) -> list[object]:
    """Every metric with its interval"""
    found = numbers.scores()
    if not found:
        return [note("There are no scores.")]
    first = [_ranged(name, numbers, next(iter(mine.items()))) for name, mine in found.items() if mine]
    rows = [row for name, mine in found.items() for row in _score_rows(_counted(name, numbers.rows(name)), mine)]
    rows += _score_rows(join("overall"), numbers.overall()) if len(found) > 1 else []
    shown = table(f"Scores with {COVERED:.0%} intervals", ("task", "metric", "score", "from", "to"), rows, words=2)
    others = "Hollow: what the papers report." if any(each.others for each in first) else ""
    drawn = intervals("Each task's first metric, with its interval", first, others)
    course = "Overall, course: a correlation r counts as (1 + r) / 2. " if len(found) > 1 else ""
    told = encoder_note(numbers.recipe, encoder_of(numbers.recipe, numbers.facts))
    return [cards(*(each for each in (drawn, shown) if each), wide=True), note(course, _judged_on(numbers)), note(told)]


def _ranged(name: str, numbers: Numbers, first: tuple[str, Score]) -> Ranged:
    metric, score = first
    others = tuple(row.of(name) for row in reported(numbers.recipe, numbers.tasks[name]))
    return Ranged(f"{name}, {called(metric)}", score.value, score.low, score.high, others)


def _score_rows(name: Html, metrics: dict[str, Score]) -> list[Sequence[object]]:
    return [
        (name, called(metric), *(number(each) for each in (score.value, score.low, score.high)))
        for metric, score in metrics.items()
    ]


def _counted(name: str, rows: int | None) -> Html:
    """A task, and how many rows its scores are of"""
    return join(name) if rows is None else join(name, tag("small", f" {number(rows, 0)} rows"))


def called(metric: str) -> str:
    """A metric as it is written in words"""
    return metric.replace("_f1", " F1")


def _judged_on(numbers: Numbers) -> str:
    best = numbers.best
    chosen = (
        f"Epoch {best.epoch}, the best of {len(numbers.log.epochs)}, was chosen on {_rows(best.select)}" if best else ""
    )
    same = ", so on new texts expect somewhat less" if best and best.select == "dev" else ""
    if numbers.judged is None:
        return f"Noted in training. {chosen}{same}."
    return (
        f"Intervals: the dev rows are drawn anew {RESAMPLES:,} times, with repetition; the middle {COVERED:.0%} of the"
        f" scores. They say how far the choice of rows moves a score, not how far another seed would. {chosen}{same}."
    )


def _rows(select: str) -> str:
    return "these same dev rows" if select == "dev" else select


def papers(numbers: Numbers) -> list[object]:
    """The papers' numbers, for tasks of theirs"""
    found = numbers.scores()
    rows: list[Sequence[object]] = []
    for name, task in numbers.tasks.items():
        known = reported(numbers.recipe, task)
        if not known or name not in found:
            continue
        metric, score = next(iter(found[name].items()))
        rows.append((name, tag("strong", "this run"), called(metric), tag("td", tag("strong", number(score.value))), ""))
        rows += [
            (name, f"{row.paper}: {row.row}", called(metric), number(row.of(name)), _signed(score.value - row.of(name)))
            for row in known
        ]
    if not rows:
        return []
    shown = table("This run and the papers, dev", ("task", "whose", "metric", "score", "ours is more by"), rows, words=3)
    told = encoder_note(numbers.recipe, encoder_of(numbers.recipe, numbers.facts))
    alone = " Task-specific attention trained each task alone; TEA-BERT trained all three on parts of Quora and STS."
    return [tag("div", shown, class_="card"), note(told, alone, " The papers give one seed and no intervals.")]


def _signed(value: float) -> str:
    return f"+{number(value)}" if value > 0 else number(value)


# curves


def learning(numbers: Numbers) -> list[object]:
    """Losses over steps, scores over epochs, task by task"""
    losses, curves = numbers.log.loss(), numbers.log.scores()
    if not losses and not curves:
        return [note("The log is empty.")]
    shown = []
    for name in dict.fromkeys([*losses, *curves]):
        loss = lines(f"Loss of {name}, in training", {"loss": losses.get(name, [])}, "step")
        metrics = {called(metric): points for metric, points in curves.get(name, {}).items()}
        score = lines(f"Scores of {name}", metrics, "epoch")
        shown.append(join(tag("h3", name), loss, score))
    return [cards(*shown)]


def sampling(numbers: Numbers) -> list[object]:
    """Each task's examples in every epoch, as they were to be and as they were"""
    found = numbers.log.sampling()
    if not found:
        return [note("No epoch was finished.")]
    charts = []
    for name, epochs in found.items():
        series = {kind: [(each["epoch"], each[kind]) for each in epochs] for kind in ("planned", "actual")}
        charts.append(join(tag("h3", name), lines(f"Examples of {name}", series, "epoch", low=0.0, digits=0)))
    rows = [
        (name, *(number(value, digits) for value, digits in _totals(epochs, found, place)))
        for place, (name, epochs) in enumerate(found.items())
    ]
    totals = table("All epochs together", ("task", "planned", "actual", "planned, %", "actual, %"), rows)
    strategy = numbers.recipe.sampling.strategy.replace("_", " ")
    told = note(f"Strategy: {strategy}. Actual: the examples whose losses stand in the log.")
    return [tag("div", totals, class_="card"), cards(*charts), told]


def _totals(
    epochs: list[dict[str, float]], found: dict[str, list[dict[str, float]]], place: int
) -> list[tuple[float, int]]:
    sums = [sum(each[kind] for each in epochs) for kind in ("planned", "actual")]
    alls = [sum(each[kind] for mine in found.values() for each in mine) for kind in ("planned", "actual")]
    return [
        *((value, 0) for value in sums),
        *((100 * mine / max(whole, 1), 1) for mine, whole in zip(sums, alls, strict=True)),
    ]


# how it was made


def made(numbers: Numbers) -> list[object]:
    """The recipe in short, the tasks, and on what it ran"""
    recipe, known = numbers.recipe, numbers.facts
    train = recipe.train
    about = {
        "encoder": encoder_name(recipe, encoder_of(recipe, known)),
        "injection": _methods(recipe.injection),
        "mode": train.mode,
        "epochs": train.epochs,
        "batch": recipe.sampling.batch if recipe.sampling.tokens is None else f"{recipe.sampling.tokens:,} tokens",
        "learning rate": f"{recipe.lr:g}",
        "weight decay": f"{train.weight_decay:g}",
        "weighting": as_mapping(train.weighting)["method"],
        "gradient surgery": train.surgery,
        "precision": train.precision,
        "seed": train.seed,
        "trained for": f"{numbers.best.seconds:,.0f} s" if numbers.best and numbers.best.seconds else None,
        "processor": known.get("gpu") or known.get("processor"),
        "teabert": known.get("teabert"),
        "commit": known.get("commit"),
        "torch": known.get("torch"),
    }
    titles = ("task", "trained on", "text", "kind", "labels or range", "reader", "answer", "loss")
    rows = [(name, _trained(numbers, name), *_task(task)) for name, task in numbers.tasks.items()]
    return [
        tag("div", facts(about), class_="card"),
        tag("div", table("Tasks", titles, rows, words=len(titles)), class_="card"),
    ]


def _methods(choice: Injections) -> str:
    return " + ".join(as_mapping(each)["method"] for each in (choice if isinstance(choice, list) else [choice]))


def _trained(numbers: Numbers, name: str) -> str:
    """How many rows a task learned from, and of how many"""
    known = numbers.subsets.get(name)
    return f"{known.train:,} of {known.of:,} rows" if known else MISSING


def _task(task: Task) -> list[object]:
    labels = f"{task.span[0]:g} to {task.span[1]:g}" if task.kind == "score" else _short(task.labels)
    pair = f", {task.pair}" if len(task.texts) == 2 else ""
    methods = (task.head.read, task.head.answer, task.loss_choice)
    return [safe(" + ".join(task.texts) + pair), task.kind, labels, *(as_mapping(each)["method"] for each in methods)]


def _short(labels: Sequence[str]) -> str:
    return ", ".join(labels[:8]) + (f" and {len(labels) - 8} more" if len(labels) > 8 else "")
