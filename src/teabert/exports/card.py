"""The model card of a run, written from what the run folder says: tasks, data, scores, encoder, limits, use."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from teabert.catalogue import ENCODERS, KnownEncoder
from teabert.config import Recipe
from teabert.model import Model
from teabert.tasks import Task
from teabert.tasks.hubrows import PREFIX

LICENCES = {"Apache-2.0": "apache-2.0", "MIT": "mit"}
"""As the catalogue names them -> as the hub does."""
METRICS = {
    "accuracy": "accuracy",
    "macro_f1": "f1",
    "micro_f1": "f1",
    "matthews": "matthews_correlation",
    "pearson": "pearsonr",
    "spearman": "spearmanr",
}


@dataclass(frozen=True)
class Judged:
    """The scores of one task."""

    task: str
    rows: int
    seed: int
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class Story:
    """What a card is written from."""

    model: Model
    recipe: Recipe
    """without paths of the machine it was trained on"""
    tasks: Mapping[str, Task]
    """those of the recipe, and added ones"""
    facts: Mapping[str, Any]
    """run.json"""
    judged: Sequence[Judged]
    collapsed: Sequence[str]

    @property
    def known(self) -> KnownEncoder | None:
        """What the catalogue says of the encoder"""
        name = self.recipe.encoder
        return ENCODERS.get(name) or next((each for each in ENCODERS.values() if each.hub == name), None)


def card(story: Story) -> str:
    """The page, front matter first."""
    recipe, tasks = story.recipe, story.tasks.values()
    front = yaml.safe_dump(front_matter(story), sort_keys=False, allow_unicode=True)
    parts = (
        f"# {recipe.name}\n\nOne encoder for {len(tasks)} tasks, trained with teabert {story.facts.get('teabert', '')}.",
        f"## Tasks\n\n{_tasks(tasks)}",
        f"## Scores\n\n{_scores(story)}",
        f"## Data\n\n{_data(tasks)}",
        f"## Model\n\n{_model(story)}",
        f"## Limits\n\n{_limits(story)}",
        f"## Use\n\n{_use(tasks)}",
    )
    return f"---\n{front}---\n\n" + "\n\n".join(parts) + "\n"


def front_matter(story: Story) -> dict[str, Any]:
    """What the hub reads: only what is known"""
    tasks, known, encoder = story.tasks.values(), story.known, story.recipe.encoder
    licence = LICENCES.get(known.licence) if known else None
    base = known.hub if known else encoder if "/" in encoder else None
    sets = dict.fromkeys(name for task in tasks for name in _datasets(task))
    found = {
        "license": licence,
        "library_name": "teabert",
        "pipeline_tag": "text-classification",
        "base_model": base,
        "tags": ["teabert", "multi-task-learning", *dict.fromkeys(task.kind for task in tasks)],
        "datasets": list(sets),
        "metrics": list(dict.fromkeys(METRICS[metric] for task in tasks for metric in task.all_metrics)),
    }
    return {key: value for key, value in found.items() if value}


def _datasets(task: Task) -> list[str]:
    """Hub ids of a task's data, where it says them"""
    places = [task.source, *([task.files] if isinstance(task.files, str) else task.files.values())]
    ids = [place.removeprefix(PREFIX).split(";")[0].split(":")[0].strip() for place in places if place.startswith(PREFIX)]
    return [name for name in ids if name]


def _tasks(tasks: Iterable[Task]) -> str:
    lines = [
        (
            task.name,
            " + ".join(task.texts) + _apart(task),
            task.kind,
            labels(task),
            task.clean,
            str(task.max_tokens or ""),
        )
        for task in tasks
    ]
    return table(("task", "text", "kind", "labels", "cleaning", "most tokens"), lines)


def _apart(task: Task) -> str:
    return f" ({task.pair})" if len(task.texts) == 2 else ""


def labels(task: Task) -> str:
    """A task's labels, or the range of its score"""
    return f"{task.span[0]:g} to {task.span[1]:g}" if task.kind == "score" else ", ".join(task.labels)


def _scores(story: Story) -> str:
    if not story.judged:
        return "None: this model was never judged."
    lines = [
        (
            each.task,
            str(each.rows),
            str(each.seed),
            "; ".join(f"{name} {value:.4f}" for name, value in each.metrics.items()),
        )
        for each in story.judged
    ]
    train = story.recipe.train
    rows = "the dev rows" if train.select == "dev" else f"{train.select:.0%} of the training rows, held back"
    return (
        table(("task", "rows", "seed", "scores"), lines)
        + f"\n\nOne run each, judged on {rows}. The best of {train.epochs} epochs was chosen on these same rows, so on new"
        " texts expect somewhat less."
    )


def _data(tasks: Iterable[Task]) -> str:
    lines = [(task.name, task.source or _place(task)) for task in tasks]
    return table(("task", "source and terms"), lines) + "\n\nNo row of these data sets is in this folder."


def _place(task: Task) -> str:
    return ", ".join(_datasets(task)) or "not stated in the recipe; whoever publishes this model should say it here"


def _model(story: Story) -> str:
    model, recipe, shape = story.model, story.recipe, story.model.encoder.shape
    counts = [
        (part, f"{sum(each.numel() for each in module.parameters()):,}")
        for part, module in (("encoder", model.encoder), ("injection", model.injection), ("heads", model.heads))
    ]
    name = story.known.hub if story.known else recipe.encoder
    base = " as an earlier teabert run left it" if recipe.base else ""
    commit = f", commit {story.facts['commit']}" if story.facts.get("commit") else ""
    return (
        f"Encoder: {name}{base} ({shape.family}, {shape.layers} layers x {shape.width}), trained in mode"
        f" `{recipe.train.mode}`. Injection: `{_injection(recipe)}`. Seed {recipe.train.seed}{commit}.\n\n"
        + table(("part", "parameters"), counts)
    )


def _injection(recipe: Recipe) -> str:
    choices = recipe.injection if isinstance(recipe.injection, list) else [recipe.injection]
    return " + ".join(choice if isinstance(choice, str) else str(choice["method"]) for choice in choices)


def _limits(story: Story) -> str:
    known = story.known
    licence = (
        f"The encoder's licence is {known.licence}."
        if known and known.licence != "unknown"
        else "The encoder's licence is not known to teabert; look it up before you publish."
    )
    seen = known.tuned_on if known and known.tuned_on != "unknown" else "not known to teabert"
    lines = [
        f"What the encoder was tuned on before: {seen}. On such texts it scores higher than one that never saw them.",
        f"{licence} That of this model is its publisher's to choose within the encoder's and the data's terms.",
        f"Texts beyond {story.model.encoder.shape.longest} tokens, or a task's own limit above, are cut.",
        "Probabilities are the model's own unless calibration.json is here.",
        "It was judged on the rows above only: not on other languages, domains or groups of people.",
    ]
    if story.collapsed:
        lines.insert(0, f"It gives one and the same answer to every judged row of: {', '.join(story.collapsed)}.")
    return "\n".join(f"- {line}" for line in lines)


def _use(tasks: Iterable[Task]) -> str:
    task = next(iter(tasks))
    texts = '[("The first text.", "The second.")]' if len(task.texts) == 2 else '["A text."]'
    return f"""```python
import teabert

model = teabert.load("THIS_FOLDER")
print(model.predict({texts}, task="{task.name}"))
```"""


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown"""
    lines = [titles, ["---"] * len(titles), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
