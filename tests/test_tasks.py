import json

import pytest

from teabert.errors import UserError
from teabert.heads import ANSWERS
from teabert.losses import LOSSES
from teabert.metrics import METRICS
from teabert.model import build_head
from teabert.tasks import SPLITS, TASKS, Task, make_task
from teabert.tasks.base import plain_label
from teabert.tasks.kinds import KINDS

OWN = {"texts": "text", "kind": "binary", "labels": ["no", "yes"], "files": "own-{split}.csv"}
PAIR = OWN | {"texts": ["one", "two"]}
SCORE = {"texts": "text", "kind": "score", "range": [0, 5], "files": "own-{split}.csv"}


def own(given=OWN, **changes):
    return make_task("own", given | changes, "tasks.own")


def refused(given, **changes):
    with pytest.raises(UserError) as caught:
        own(given, **changes)
    assert str(caught.value).startswith("tasks.own: ")
    return str(caught.value)


@pytest.mark.parametrize("name", TASKS)
def test_every_listed_task_can_be_made_and_read_off(name, encoder):
    task = make_task(name, None, name)
    assert task == TASKS[name]
    assert task.name == name
    assert task.all_metrics
    head = build_head(task, encoder)
    assert sum(parameter.numel() for parameter in head.answer.parameters()) > 0


@pytest.mark.parametrize("name", TASKS)
def test_every_listed_task_survives_being_written_down(name):
    task = TASKS[name]
    assert Task.model_validate(json.loads(json.dumps(task.model_dump(mode="json")))) == task


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_a_usual_loss_and_usual_metrics(kind):
    facts = {"score": {"range": [0, 1]}}.get(kind, {"labels": ["a", "b"]})
    task = make_task("own", {"texts": "text", "kind": kind, "files": "{split}.csv"} | facts, "own")
    assert kind in LOSSES[task.loss_choice].kinds
    assert set(task.all_metrics) <= set(KINDS[kind].accepts) <= set(METRICS)
    assert task.outputs == {"classes": 2, "soft": 2, "ordinal": 1, "binary": 1, "multilabel": 2, "score": 1}[kind]
    assert task.span == (0, 1)


def test_differences_are_laid_over_a_listed_task():
    task = make_task("sst", {"take": 100, "head": {"dropout": 0.3}}, "tasks.sst")
    assert (task.take, task.head.dropout, task.head.read) == (100, 0.3, "mean")
    assert task.labels == TASKS["sst"].labels


def test_one_text_may_be_named_without_a_list():
    assert own(texts="text").texts == ("text",)
    assert own(PAIR).texts == ("one", "two")


@pytest.mark.parametrize(
    ("value", "expected"),
    [(1, "1"), (1.0, "1"), ("1.0", "1"), (" 1 ", "1"), (0.5, "0.5"), (True, "true"), ("true", "true"), (" yes ", "yes")],
)
def test_a_label_reads_the_same_however_it_is_written(value, expected):
    assert plain_label(value) == expected


def test_labels_may_be_numbers():
    assert own(labels=[0, 1.0]).labels == ("0", "1")


def test_files_name_the_splits():
    assert [own().file(split) for split in SPLITS] == ["own-train.csv", "own-dev.csv", "own-test.csv"]
    task = own(files={"train": "a.csv", "dev": "b.csv"})
    assert [task.file(split) for split in SPLITS] == ["a.csv", "b.csv", None]


def test_sequences_follow_from_texts_and_pair():
    assert own().sequences == own(PAIR).sequences == 1
    assert own(PAIR, pair="apart", head={"answer": "dot"}).sequences == 2


@pytest.mark.parametrize(
    ("given", "changes", "message"),
    [
        (OWN, {"head": {"answer": "dot"}}, "'dot' compares two vectors, but this task has one text; use linear"),
        (PAIR, {"head": {"answer": "cosine"}}, "encodes its pairs together; set pair: apart, or use linear"),
        (PAIR, {"pair": "apart"}, "apart gives two vectors, 'linear' reads one; use concatenated or difference or dot"),
        (
            PAIR,
            {"pair": "apart", "kind": "classes", "labels": ["a", "b", "c"], "head": {"answer": "dot"}},
            "'dot' fits kind binary and score, not 'classes'; use concatenated or difference",
        ),
        (OWN, {"head": {"stretch": "sigmoid"}}, "head.stretch: it is for scores; the loss of kind 'binary'"),
        (OWN, {"head": {"stretch": "tanh"}}, "'none', 'raw' or 'sigmoid'"),
        (OWN, {"head": {"share": "two words"}}, "head.share: 'two words' does not fit"),
        (OWN, {"head": {"answer": "lineal"}}, "Unknown answer 'lineal'. Did you mean 'linear'? Known: concatenated,"),
        (OWN, {"head": {"read": "median"}}, "Unknown read 'median'. Did you mean 'mean'? Known: "),
        (OWN, {"head": {"answer": {"method": "linear", "width": 3}}}, "answer (linear): unknown key 'width'."),
        (OWN, {"head": {"answer": {"width": 3}}}, "answer: say which method, as a name or as {method: NAME, ...}"),
        (OWN, {"head": {"dropout": 1}}, "head.dropout: 1 does not fit: input should be less than 1"),
        (OWN, {"head": {"drop": 1}}, "unknown key 'head.drop'. Did you mean 'dropout'? Accepted: read, answer, dropout,"),
        (OWN, {"head": "linear"}, "head: 'linear' does not fit"),
        (OWN, {"head": None}, "head: a task needs a head: say how it reads and answers, or leave the key out"),
        (SCORE, {"head": {"answer": {"method": "dot", "width": 0}}}, "head.answer (dot): width: 0 does not fit"),
        (OWN, {"metrics": ["acuracy"]}, "Unknown metric 'acuracy'. Did you mean 'accuracy'?"),
        (OWN, {"metrics": ["pearson"]}, "metric 'pearson' does not fit kind 'binary'; accuracy, macro_f1, matthews do"),
        (OWN, {"loss": "hinge"}, "Unknown loss 'hinge'. Known: binary_cross_entropy,"),
        (OWN, {"loss": "squared_error"}, "loss 'squared_error' does not fit kind 'binary'; binary_cross_entropy do"),
        (SCORE, {"loss": "cross_entropy"}, "'cross_entropy' does not fit kind 'score'; squared_error, negative_pearson do"),
        (OWN, {"labels": []}, "a binary task needs labels: two or more different ones, got []"),
        (OWN, {"labels": [None, "yes"]}, "labels.0: a label is a word or a number, not a NoneType"),
        (OWN, {"labels": [["no"], "yes"]}, "labels.0: a label is a word or a number, not a list"),
        (OWN, {"labels": ["1", 1.0]}, "two or more different ones, got ['1', '1']"),
        (OWN, {"labels": ["a", "b", "c"]}, "a binary task has two labels, the negative one first; got ['a', 'b', 'c']"),
        (OWN, {"class_weights": [1, 2, 3]}, "class_weights: 3 weights for 2 labels"),
        (SCORE, {"class_weights": "balanced"}, "class_weights: a score task has no classes"),
        (SCORE, {"range": None}, "a score task needs range: [lowest, highest], got None"),
        (SCORE, {"range": [5, 0]}, "a score task needs range: [lowest, highest], got (5.0, 0.0)"),
        (OWN, {"take": 1.5}, "take: 1.5 is neither a whole number of rows nor a part between 0 and 1"),
        (OWN, {"take": 0}, "should be greater than 0"),
        (OWN, {"take": -3}, "should be greater than 0"),
        (OWN, {"files": "own.csv"}, "files must hold '{split}'"),
        (
            OWN,
            {"kind": "class"},
            "kind: 'class' does not fit: input should be 'classes', 'soft', 'ordinal', 'binary', 'multilabel'",
        ),
        (OWN, {"texts": []}, "texts: [] does not fit"),
        (OWN, {"texts": ["a", "b", "c"]}, "texts: ['a', 'b', 'c'] does not fit"),
        (OWN, {"max_tokens": 4}, "max_tokens: 4 does not fit: input should be greater than or equal to 8"),
        (OWN, {"weight": 0}, "weight: 0 does not fit: input should be greater than 0"),
        (OWN, {"weight": float("nan")}, "weight: nan does not fit: input should be a finite number"),
        (OWN, {"lable": "x"}, "unknown key 'lable'. Did you mean 'label'? Accepted: name, texts, label,"),
        (OWN, {"name": "other"}, "the task is listed as 'own' but names itself 'other'"),
    ],
)
def test_a_task_that_cannot_work_is_refused_with_what_would(given, changes, message):
    assert message in refused(given, **changes)


def test_a_missing_kind_is_asked_for():
    with pytest.raises(UserError, match="'kind' is missing; it must be given"):
        make_task("own", {"texts": "text", "files": "{split}.csv"}, "tasks.own")


def test_an_unknown_task_is_answered_with_the_nearest_and_the_list():
    with pytest.raises(UserError) as caught:
        make_task("quorra", None, "tasks.quorra")
    message = str(caught.value)
    assert message.startswith("Unknown task 'quorra'. Did you mean 'quora'? Known: ")
    assert all(name in message for name in TASKS)
    assert "Or define it in the recipe with texts, label, kind, labels (or range) and files." in message


@pytest.mark.parametrize("name", ["", "a b", "a/b", "../x", "é"])
def test_a_task_name_is_a_plain_word(name):
    with pytest.raises(UserError, match=r"name: .* does not fit"):
        make_task(name, OWN, "tasks")


@pytest.mark.parametrize("answer", ANSWERS)
def test_every_answer_fits_some_task(answer, encoder):
    apart = ANSWERS[answer].apart
    given = OWN | {"kind": "ordinal"} if answer == "coral" else SCORE
    task = own(given, texts=["one", "two"], pair="apart" if apart else "together", head={"answer": answer})
    assert type(build_head(task, encoder).answer) is ANSWERS[answer]
