"""WHAT is learned: a Task says where its rows are, what its label means, how it is read off and how it is judged."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from teabert.errors import unknown
from teabert.heads import ANSWERS, READERS, Stretch
from teabert.losses import LOSSES
from teabert.methods import Choice, as_mapping, resolve
from teabert.metrics import METRICS
from teabert.settings import Settings
from teabert.tasks.kinds import KINDS, Kind

SPLITS = ("train", "dev", "test")


def plain_label(value: object) -> str:
    """A label as text: 1, 1.0, "1.0" and true are one label."""
    if isinstance(value, bool):
        return str(value).lower()
    text = str(value).strip()
    try:
        number = float(text)
    except ValueError:
        return text
    return str(int(number)) if number.is_integer() else str(number)


def _stated_label(value: object) -> str:
    if not isinstance(value, str | int | float):  # true and false are whole numbers to Python
        raise ValueError(f"a label is a word or a number, not a {type(value).__name__}")
    return plain_label(value)


Label = Annotated[str, BeforeValidator(_stated_label)]


def _one_or_more(value: object) -> object:
    return (value,) if isinstance(value, str) else value


class HeadChoice(Settings):
    """How a task's answer is read off the encoder."""

    read: Choice = "mean"
    """The reader: first_token, mean, or {method: NAME, option: value}."""
    answer: Choice = "linear"
    """The answer: linear, concatenated, difference, dot, cosine, or {method: NAME, option: value}."""
    dropout: float = Field(0.1, ge=0, lt=1)
    """Dropout between reader and answer; the papers' is 0.3."""
    stretch: Stretch | None = None
    """For scores: how the head's number becomes one in the task's range. none: as it is; raw: stretched over the range,
    5x for STS; sigmoid: the same after a sigmoid. Left out, cosine's is raw and others have none."""
    share: str | None = Field(None, pattern=r"^[A-Za-z0-9_-]+$")
    """Another task, whose head is used; or a name that several tasks give to the one head they have in common."""

    @model_validator(mode="after")
    def _known(self) -> Self:
        resolve(READERS, self.read, "head.read")
        resolve(ANSWERS, self.answer, "head.answer")
        return self


def _some_head(given: object) -> object:
    if given is None:
        raise ValueError("a task needs a head: say how it reads and answers, or leave the key out for the usual one")
    return given


class Extra(Settings):
    """Training rows that a task borrows from another."""

    labels: dict[Label, Label | None] | None = None
    """For each label of the other task, which label of this one it is; null leaves its rows out."""
    take: int | float | None = Field(None, gt=0)
    """So many of its rows, or such a part of them: a seeded choice that is saved with the run."""
    rows: dict[str, Any] = {}
    """What differs from the other task; for rows of your own, what differs from this one, such as its files."""


def _extras(given: Any) -> Any:
    """A name, a list of names, or a mapping from name to options -> a mapping"""
    names = [given] if isinstance(given, str) else given
    if isinstance(names, list | tuple) and all(isinstance(name, str) for name in names):
        return {name: {} for name in names}
    return {name: facts or {} for name, facts in given.items()} if isinstance(given, Mapping) else given


class Task(Settings):
    """One task: rows, label, head, loss, metrics."""

    name: str = Field(pattern=r"^[A-Za-z0-9_-]+$")
    """Letters, digits, '-' and '_'."""
    texts: Annotated[tuple[str, ...], BeforeValidator(_one_or_more)] = Field(min_length=1, max_length=2)
    """The column of the text, or the two columns of a pair."""
    label: str = "label"
    """The column of the label."""
    id: str | None = None
    """The column that names a row; without one rows are named by their line."""
    kind: Literal["classes", "soft", "ordinal", "binary", "multilabel", "score"]
    """classes: one of several; soft: one of several, each row saying how likely each is; ordinal: one of several in order;
    binary: yes or no; multilabel: any of several; score: a number in a range."""
    labels: tuple[Label, ...] = ()
    """The labels as they stand in the files; for binary the negative one first."""
    range: tuple[float, float] | None = None
    """For scores: the lowest and highest."""
    label_separator: str = Field("|", min_length=1)
    """For multilabel and soft: what separates the labels, or their shares, in a cell."""
    class_weights: Literal["balanced"] | tuple[float, ...] | None = None
    """Weight of each label in the loss; balanced: inversely to how often it occurs in the training rows."""
    files: str | dict[Literal["train", "dev", "test"], str]
    """Where the rows are: a path with {split} in it, or a path for each split. csv, tsv, jsonl or parquet."""
    quotes: bool = True
    """Cells of csv and tsv files may be quoted; false where quotation marks are plain characters."""
    clean: Literal["none", "lower", "spaced"] = "none"
    """lower: lower case and strip; spaced: also a space before . ? , ' (the course's way with pairs)."""
    pair: Literal["together", "apart"] = "together"
    """Encode a pair as one sequence with segments (better), or as two sequences (the papers' way)."""
    max_tokens: int | None = Field(None, ge=8)
    """Longer texts are cut to so many tokens; without it, to what the encoder can take."""
    head: Annotated[HeadChoice, BeforeValidator(_some_head)] = HeadChoice()
    """How the answer is read off."""
    loss: Choice = ""
    """The loss, or {method: NAME, option: value}; by default the usual one of the kind."""
    metrics: tuple[str, ...] = ()
    """The metrics, the one that counts first; by default the usual ones of the kind."""
    weight: float = Field(1.0, gt=0)
    """Weight of the task in the joint loss."""
    take: int | float | None = Field(None, gt=0)
    """Train on so many rows, or on such a part of them: a seeded choice that is saved with the run."""
    extra: Annotated[dict[str, Extra], BeforeValidator(_extras)] = {}
    """Tasks whose training rows are added to this one's; dev and test stay its own."""
    on_bad_row: Literal["error", "skip"] = "error"
    """What to do with a row that cannot be used; skipped ones are counted and shown."""
    course_column: str = ""
    """The column title in the course's prediction files."""
    course_name: str = ""
    """The task's name in the course's prediction file names."""
    shares_rows_with: tuple[str, ...] = ()
    """Tasks whose dev or test rows stand in this task's training rows: the two are never trained together."""
    source: str = ""
    """Where the data comes from, and its licence."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for metric in self.all_metrics:
            if metric not in METRICS:
                raise unknown("metric", metric, METRICS)
            if metric not in self.meaning.accepts:
                raise ValueError(f"metric '{metric}' does not fit kind '{self.kind}'; {', '.join(self.meaning.accepts)} do")
        self._check_labels()
        self._check_loss()
        self._check_head()
        if isinstance(self.files, str) and "{split}" not in self.files and not self.files.startswith("hub:"):
            raise ValueError("files must hold '{split}', give a path for each of train, dev, test, or be hub:ORG/NAME")
        if isinstance(self.take, float) and self.take > 1:
            raise ValueError(f"take: {self.take} is neither a whole number of rows nor a part between 0 and 1")
        return self

    def _check_labels(self) -> None:
        if self.kind == "score":
            if self.range is None or self.range[0] >= self.range[1]:
                raise ValueError(f"a score task needs range: [lowest, highest], got {self.range}")
            return
        if len(self.labels) < 2 or len(set(self.labels)) < len(self.labels):
            raise ValueError(f"a {self.kind} task needs labels: two or more different ones, got {list(self.labels)}")
        if self.kind == "binary" and len(self.labels) != 2:
            raise ValueError(f"a binary task has two labels, the negative one first; got {list(self.labels)}")
        if isinstance(self.class_weights, tuple) and len(self.class_weights) != len(self.labels):
            raise ValueError(f"class_weights: {len(self.class_weights)} weights for {len(self.labels)} labels")
        if isinstance(self.class_weights, tuple) and min(self.class_weights) < 0:
            raise ValueError(f"class_weights: {min(self.class_weights):g} is below zero; weights are zero or more")

    def _check_loss(self) -> None:
        loss, _ = resolve(LOSSES, self.loss_choice, "loss")
        if self.kind not in loss.kinds:
            fitting = ", ".join(name for name, each in LOSSES.items() if self.kind in each.kinds)
            name = as_mapping(self.loss_choice)["method"]
            raise ValueError(f"loss '{name}' does not fit kind '{self.kind}'; {fitting} do")
        if self.kind == "score" and self.class_weights is not None:
            raise ValueError("class_weights: a score task has no classes")

    def _check_head(self) -> None:
        answer, _ = resolve(ANSWERS, self.head.answer, "head.answer")
        name, apart = as_mapping(self.head.answer)["method"], self.sequences == 2
        fitting = [other for other, each in ANSWERS.items() if each.apart == apart and self.kind in each.kinds]
        use = f"use {' or '.join(fitting)}"
        if answer.apart and not apart:
            alone = len(self.texts) == 1
            reason = f"has one text; {use}" if alone else f"encodes its pairs together; set pair: apart, or {use}"
            raise ValueError(f"head.answer: '{name}' compares two vectors, but this task {reason}")
        if apart and not answer.apart:
            raise ValueError(f"head.answer: pair: apart gives two vectors, '{name}' reads one; {use}")
        if self.kind not in answer.kinds:
            raise ValueError(f"head.answer: '{name}' fits kind {' and '.join(answer.kinds)}, not '{self.kind}'; {use}")
        if self.head.stretch not in (None, "none") and self.kind != "score":
            raise ValueError(f"head.stretch: it is for scores; the loss of kind '{self.kind}' wants plain outputs")

    @property
    def meaning(self) -> Kind:
        """What the kind of task implies."""
        return KINDS[self.kind]

    @property
    def sequences(self) -> int:
        """How many sequences one example is encoded as."""
        return 2 if len(self.texts) == 2 and self.pair == "apart" else 1

    @property
    def outputs(self) -> int:
        """How many numbers the head gives."""
        if self.kind == "ordinal":
            return len(self.labels) - 1
        return len(self.labels) if self.kind in ("classes", "soft", "multilabel") else 1

    @property
    def head_name(self) -> str:
        """The head it uses: its own, or a shared one."""
        return self.head.share or self.name

    @property
    def span(self) -> tuple[float, float]:
        """The range of a score; 0 to 1 for other kinds."""
        return self.range or (0.0, 1.0)

    @property
    def stretch(self) -> Stretch:
        """How the head's number becomes a score: as the recipe says, or as the answer usually does."""
        if self.head.stretch is not None:
            return self.head.stretch
        usual: Stretch = resolve(ANSWERS, self.head.answer, "head.answer")[0].stretch
        return usual

    @property
    def loss_choice(self) -> Choice:
        """The loss, or the usual one of the kind."""
        return self.loss or self.meaning.loss

    @property
    def all_metrics(self) -> tuple[str, ...]:
        """The metrics, or the usual ones of the kind."""
        return self.metrics or self.meaning.metrics

    def file(self, split: str) -> str | None:
        """The path of a split, below the data folder; nothing where the task has no such split."""
        if isinstance(self.files, str):
            return self.files.replace("{split}", split)
        return next((path for name, path in self.files.items() if name == split), None)
