"""Further tasks from public data sets, cleaned: no row of the course's dev and test files stands in them.

They are the files more/NAME-SPLIT.tsv of the data folder. The uncleaned releases are in public.py.
"""

from collections.abc import Sequence

from teabert.tasks.base import Task

PAIR = ("sentence1", "sentence2")
TERMS = "more/ files: public data, cleaned of the course's dev and test rows; the data's owners' terms apply"


def _task(name: str, texts: str | Sequence[str], splits: Sequence[str] = ("train", "dev"), **facts: object) -> Task:
    files = {split: f"more/{name}-{split}.tsv" for split in splits}
    return Task.model_validate({"name": f"more-{name}", "texts": texts, "files": files, "source": TERMS} | facts)


CLEANED = (
    _task("cola", "sentence1", kind="binary", labels=("0", "1"), metrics=("matthews", "accuracy")),
    _task("rte", PAIR, kind="binary", labels=("not_entailment", "entailment")),
    _task("wnli", PAIR, kind="binary", labels=("0", "1")),
    # shares_rows_with: the public release splits the same corpus in another way
    _task("mrpc", PAIR, kind="binary", labels=("0", "1"), shares_rows_with=("mrpc",)),
    _task("boolq", PAIR, kind="binary", labels=("false", "true")),
    _task("sick-entailment", PAIR, kind="classes", labels=("ENTAILMENT", "NEUTRAL", "CONTRADICTION")),
    _task("sick-relatedness", PAIR, kind="score", range=(1, 5)),
    _task("sts-semeval", PAIR, splits=("train",), kind="score", range=(0, 5)),
    _task("mr", "sentence1", splits=("train",), kind="binary", labels=("0", "1")),
)
