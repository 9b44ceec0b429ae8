"""The public releases on the hub as tasks of their own, and which files of which repository they are.

`teabert data get NAME` puts them below public/ in the data folder, unchanged. Labels are the hub's numbers; in GLUE's
test rows they are -1, which reads as no label.
"""

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from teabert.tasks.base import Task

ALIASES = {"sst": "sst5", "quora": "qqp", "sts": "stsb"}
"""Names of the course's tasks, whose own splits cannot be fetched, and the public releases of the same data."""


@dataclass(frozen=True)
class Release:
    """Files of one hub repository."""

    repo: str
    revision: str
    """A commit, so that everyone gets the same rows; refs/convert/parquet is the hub's own conversion."""
    licence: str
    """As the hub's page states it."""
    files: dict[str, str]
    """Path in the repository of each split."""


@dataclass(frozen=True)
class Public:
    """A public task and its release."""

    task: Task
    release: Release


def _public(release: Release, name: str, stem: str = "", **facts: object) -> Public:
    """stem: begins the names of the local files; two tasks may read the same ones."""
    files = {split: f"public/{stem or name}-{split}{PurePosixPath(path).suffix}" for split, path in release.files.items()}
    source = f"hub:{release.repo}; licence: {release.licence}"
    return Public(Task.model_validate({"name": name, "files": files, "source": source} | facts), release)


def _glue(name: str, dev: str = "validation", test: str = "test", **facts: Any) -> Public:
    splits = {"train": "train", "dev": dev, "test": test}
    release = Release(
        repo="nyu-mll/glue",
        revision="bcdcba79d07bc864c1c254ccfcedcce55bcc9a8c",
        licence="other (each GLUE task keeps its owners' terms)",
        files={split: f"{name}/{theirs}-00000-of-00001.parquet" for split, theirs in splits.items()},
    )
    return _public(release, name, **({"id": "idx", "kind": "binary", "labels": ("0", "1")} | facts))


_SST5 = Release(
    repo="SetFit/sst5",
    revision="e51bdcd8cd3a30da231967c1a249ba59361279a3",
    licence="none stated",
    files={split: f"{split}.jsonl" for split in ("train", "dev", "test")},
)
_BOOLQ = Release(
    repo="google/boolq",
    revision="35b264d03638db9f4ce671b711558bf7ff0f80d5",
    licence="CC BY-SA 3.0",
    files={"train": "data/train-00000-of-00001.parquet", "dev": "data/validation-00000-of-00001.parquet"},
)
_SICK = Release(
    repo="RobZamp/sick",
    revision="refs/convert/parquet",  # the repository itself holds only a script, which we never run
    licence="CC BY-NC-SA 3.0",
    files={
        "train": "default/train/0000.parquet",
        "dev": "default/validation/0000.parquet",
        "test": "default/test/0000.parquet",
    },
)

_PAIR = ("sentence1", "sentence2")
_AB = ("sentence_A", "sentence_B")
_OF_STS = ("sts",)  # the course split STS anew at random, so its dev and test rows stand in these
_ENTAILED = ("1", "0")  # RTE and QNLI: 0 is entailment, 1 is not; a binary task lists the negative one first

_ALL = (
    _public(_SST5, "sst5", texts="text", kind="classes", labels=("0", "1", "2", "3", "4")),
    _glue("sst2", texts="sentence"),
    _glue("cola", texts="sentence", metrics=("matthews", "accuracy")),
    # two of QQP's questions are empty; the course split the same questions anew
    _glue("qqp", texts=("question1", "question2"), on_bad_row="skip", shares_rows_with=("quora",)),
    _glue("stsb", texts=_PAIR, kind="score", labels=(), range=(0, 5), shares_rows_with=_OF_STS),
    _glue("mrpc", texts=_PAIR, shares_rows_with=_OF_STS),
    _glue("rte", texts=_PAIR, labels=_ENTAILED),
    _glue("wnli", texts=_PAIR),
    _glue("qnli", texts=("question", "sentence"), labels=_ENTAILED),
    _glue(
        "mnli",  # 0 entailment, 1 neutral, 2 contradiction
        dev="validation_matched",
        test="test_matched",
        texts=("premise", "hypothesis"),
        kind="classes",
        labels=("0", "1", "2"),
    ),
    _public(_BOOLQ, "boolq", texts=("question", "passage"), label="answer", kind="binary", labels=("false", "true")),
    _public(
        _SICK,
        "sick-entailment",
        "sick",
        id="id",
        texts=_AB,
        kind="classes",
        labels=("0", "1", "2"),  # entailment, neutral, contradiction
        shares_rows_with=_OF_STS,
    ),
    _public(
        _SICK,
        "sick-relatedness",
        "sick",
        id="id",
        texts=_AB,
        label="relatedness_score",
        kind="score",
        range=(1, 5),
        shares_rows_with=_OF_STS,
    ),
)

PUBLIC: dict[str, Public] = {public.task.name: public for public in _ALL}
"""Every public task by its name; to add one, add it above."""
