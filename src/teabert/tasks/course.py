"""The papers' tasks in the course's own layout: tab-separated despite .csv, broken test headers, float labels."""

from teabert.tasks.base import Task


def _files(name: str, test: str = "test-student") -> dict[str, str]:
    return {"train": f"cs224n/{name}-train.csv", "dev": f"cs224n/{name}-dev.csv", "test": f"cs224n/{name}-{test}.csv"}


def _task(**facts: object) -> Task:
    return Task.model_validate({"id": "id", "source": "CS224N default project; the data's owners' terms apply"} | facts)


SST = _task(
    name="sst",
    texts="sentence",
    label="sentiment",
    kind="classes",
    labels=("0", "1", "2", "3", "4"),
    files=_files("ids-sst"),
    clean="lower",
    course_column="Predicted_Sentiment",
    course_name="sst",
)
CFIMDB = _task(
    name="cfimdb",
    texts="sentence",
    label="sentiment",
    kind="binary",
    labels=("0", "1"),
    files=_files("ids-cfimdb"),
    clean="lower",
    course_column="Predicted_Sentiment",
    course_name="cfimdb",
)
QUORA = _task(
    name="quora",
    texts=("sentence1", "sentence2"),
    label="is_duplicate",
    kind="binary",
    labels=("0", "1"),
    files=_files("quora"),
    clean="spaced",
    on_bad_row="skip",  # the course drops the rows it cannot parse
    course_column="Predicted_Is_Paraphrase",
    course_name="para",
)
STS = _task(
    name="sts",
    texts=("sentence1", "sentence2"),
    label="similarity",
    kind="score",
    range=(0, 5),
    files=_files("sts"),
    clean="spaced",
    course_column="Predicted_Similiary",  # misspelt so in the course's grader
    course_name="sts",
)
