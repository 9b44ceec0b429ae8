"""What is asked and answered in JSON: strict bodies in, plain models for the documentation out."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, FailFast, Field, PlainValidator, StrictBool

from teabert.answers import Answer
from teabert.requests import Refusal, readable
from teabert.settings import Settings
from teabert.settings import shown as quoted
from teabert.tasks import Task

LONG = 100
"""No task has a longer name."""
Pair = Annotated[list[str], Field(min_length=2, max_length=2)]
OneOrTwo = Annotated[list[str], Field(min_length=1, max_length=2)]


def _text(given: Any) -> str | tuple[str, str]:
    if isinstance(given, str):
        return readable(given)
    if isinstance(given, list) and len(given) == 2 and all(isinstance(part, str) for part in given):
        return readable(given[0]), readable(given[1])
    raise ValueError(f"a text is a string, a pair is a list of two; got {quoted(given)}")


def _tasks(given: Any) -> list[str] | None:
    if given == "all" or given is None:
        return None
    if isinstance(given, list) and given and all(isinstance(name, str) and len(name) <= LONG for name in given):
        return list(dict.fromkeys(map(readable, given)))
    raise ValueError(f'tasks are a list of names, or "all"; got {quoted(given)}')


def _item(given: Any) -> Any:
    return {"text": given} if isinstance(given, str | list) else few_keys(given, Item) if isinstance(given, dict) else given


def few_keys(given: Mapping[str, Any], model: type[BaseModel]) -> dict[str, Any]:
    """What is given with one unknown key at most: to explain thousands would take longer than to answer."""
    known = {key: given[key] for key in model.model_fields if key in given}
    unknown = next((key for key in given if key not in model.model_fields), None)
    return known if unknown is None else known | {unknown[:LONG]: None}


def _inputs(given: Any) -> list[str | tuple[str, str]] | str | tuple[str, str]:
    """As text-embeddings-inference reads it: a list of strings is one text or pair, a list of lists is several"""
    if isinstance(given, list) and given and all(isinstance(each, list) for each in given):
        return [_text(each[0] if len(each) == 1 else each) for each in given]
    return _text(given[0] if isinstance(given, list) and len(given) == 1 else given)


Text = Annotated[str | tuple[str, str], PlainValidator(_text, json_schema_input_type=str | Pair)]
Names = Annotated[list[str], Field(min_length=1)]
Tasks = Annotated[list[str] | None, PlainValidator(_tasks, json_schema_input_type=Names | Literal["all"] | None)]
Id = Annotated[str, BeforeValidator(lambda given: readable(given) if isinstance(given, str) else given)]


class Item(Settings):
    """A text with what is asked of it."""

    text: Text
    """A text, or the two of a pair."""
    tasks: Tasks = None
    """Its tasks; by default those of the whole request."""
    id: Id = ""
    """Comes back with its answers."""


Items = Annotated[
    list[Annotated[Item, BeforeValidator(_item, json_schema_input_type=str | Pair | Item)]],
    Field(min_length=1),
    FailFast(),
]
Threshold = Annotated[float, Field(ge=0, le=1, strict=True)] | None


class PredictBody(Settings):
    """Texts, and the tasks they are asked under."""

    texts: Items
    """Texts, pairs, or objects with text, tasks and id."""
    tasks: Tasks = None
    """Names of tasks; "all" (the default) is every task that takes what is given."""
    abstain: Threshold = None
    """Answers with a lower probability than this have no label."""


class TaskBody(Settings):
    """Texts for one task."""

    texts: Annotated[list[Text], Field(min_length=1), FailFast()]
    """Texts, or pairs, as the task takes them."""
    abstain: Threshold = None
    """Answers with a lower probability than this have no label."""


class AttentionBody(Settings):
    """A text, and the tasks whose attention is wanted."""

    text: Text
    """A text, or the two of a pair."""
    tasks: Tasks = None
    """Names of tasks; "all" (the default) is every task that takes what is given."""


class InferenceBody(BaseModel):
    """What clients of text-embeddings-inference send to /predict; keys unknown here are passed over."""

    inputs: Annotated[
        list[str | tuple[str, str]] | str | tuple[str, str],
        PlainValidator(_inputs, json_schema_input_type=str | OneOrTwo | Annotated[list[OneOrTwo], Field(min_length=1)]),
    ]
    """A text, a list of one text or two (a pair), or a list of such lists."""
    raw_scores: StrictBool = False
    """Logarithms of the probabilities, which are logits up to a constant."""
    truncate: StrictBool = False
    """Cut texts that are too long; otherwise they are refused."""


class AnswerShown(BaseModel):
    """What the model says of a text, or why it says nothing; only what the task has."""

    label: str | list[str] | None = None
    score: float | None = None
    probability: float | None = None
    probabilities: dict[str, float] | None = None
    abstained: bool | None = None
    error: str | None = None


class Result(BaseModel):
    """The answers on one text, by task."""

    id: str | None = None
    answers: dict[str, AnswerShown]
    error: str | None = None


class PredictAnswer(BaseModel):
    """Answers in the order of the texts."""

    results: list[Result]


class TaskAnswer(BaseModel):
    """One task's answers in the order of the texts."""

    task: str
    answers: list[AnswerShown]


class TaskShown(BaseModel):
    """What a task takes and says."""

    name: str
    kind: str
    texts: list[str]
    labels: list[str]
    range: list[float] | None


class TasksAnswer(BaseModel):
    """The tasks of the model."""

    tasks: list[TaskShown]


class AttentionShown(BaseModel):
    """How much a task reads each word; the words of a pair's second text begin at `second`."""

    words: list[str] | None = None
    weights: list[float] | None = None
    second: int | None = None
    error: str | None = None


class AttentionAnswer(BaseModel):
    """By task."""

    attention: dict[str, AttentionShown]


class Prediction(BaseModel):
    """A label and its score, as text-embeddings-inference says it."""

    score: float
    label: str


class ProblemShown(BaseModel):
    """Why a request as a whole is not answered."""

    error: str
    error_type: str


class Health(BaseModel):
    """Whether the server lives, or takes questions."""

    status: str


def show_answer(found: Answer | Refusal, abstain: float | None = None) -> dict[str, Any]:
    """An answer or a refusal as JSON; the task's name stands beside it already."""
    if isinstance(found, Refusal):
        return {"error": found.message}
    shown: dict[str, Any] = {"label": found.label, "score": found.score, "probability": found.probability}
    shown = {key: value for key, value in shown.items() if value is not None}
    if found.probabilities:
        shown["probabilities"] = found.probabilities
    if abstain is not None and found.probability is not None and found.probability < abstain:
        shown |= {"label": None, "abstained": True}
    return shown


def show_task(task: Task) -> dict[str, Any]:
    """A task as JSON."""
    facts = {"name": task.name, "kind": task.kind, "texts": list(task.texts), "labels": list(task.labels)}
    return facts | {"range": None if task.range is None else list(task.range)}


def fitting(tasks: Mapping[str, Task], text: str | tuple[str, str]) -> list[str]:
    """The tasks that take what is given: one text, or a pair."""
    return [name for name, task in tasks.items() if len(task.texts) == (1 if isinstance(text, str) else 2)]
