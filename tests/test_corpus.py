"""The synthetic corpus: the same bytes for the same seed, balanced, nothing shared between splits, hard by words alone."""

import csv
from collections import Counter
from math import ceil

import pytest

from teabert.baseline import tfidf_predictions
from teabert.corpus import TASKS, write_corpus

SPLITS = ("train", "dev")


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("corpus") / "new" / "folder")


@pytest.fixture(scope="module")
def tables(paths):
    tables = {}
    for name, path in paths.items():
        with path.open(encoding="utf-8", newline="") as file:
            tables[name] = list(csv.reader(file, delimiter="\t", strict=True))
    return tables


def texts(row):
    return tuple(row[1:-1])


def test_the_same_seed_writes_the_same_bytes(paths, tmp_path):
    again = write_corpus(tmp_path)
    assert {name: path.read_bytes() for name, path in again.items()} == {n: p.read_bytes() for n, p in paths.items()}


def test_another_seed_writes_other_rows(paths, tmp_path):
    other = write_corpus(tmp_path, seed=7)
    assert all(path.read_bytes() != paths[name].read_bytes() for name, path in other.items())


def test_only_the_six_files_are_written(paths):
    folder = paths["questions-dev"].parent
    assert sorted(path.name for path in folder.iterdir()) == sorted(f"{t}-{s}.tsv" for t in TASKS for s in SPLITS)
    assert set(paths) == {f"{task}-{split}" for task in TASKS for split in SPLITS}


def test_writing_again_replaces_what_was_there(tmp_path):
    write_corpus(tmp_path, seed=1)
    before = (tmp_path / "sentiment-dev.tsv").read_bytes()
    (tmp_path / "sentiment-dev.tsv").write_text("half a fi")
    write_corpus(str(tmp_path), seed=1)
    assert (tmp_path / "sentiment-dev.tsv").read_bytes() == before


@pytest.mark.parametrize("task", TASKS)
def test_every_row_has_the_headers_columns(tables, task):
    columns, _, *sizes = TASKS[task]
    for split, size in zip(SPLITS, sizes, strict=True):
        header, *rows = tables[f"{task}-{split}"]
        assert header == ["id", *columns]
        assert len(rows) == size
        assert all(len(row) == len(header) and all(row) for row in rows)
        assert len({row[0] for row in rows}) == len(rows)


@pytest.mark.parametrize("task", TASKS)
def test_labels_are_in_range_and_balanced(tables, task):
    _, labels, *_ = TASKS[task]
    for split in SPLITS:
        rows = tables[f"{task}-{split}"][1:]
        # a similarity is lowered by a half where a detail differs as well
        counts = Counter(ceil(float(row[-1])) for row in rows)
        assert set(counts) == set(range(labels))
        assert max(counts.values()) - min(counts.values()) <= 1


@pytest.mark.parametrize("task", TASKS)
def test_no_row_repeats_within_or_between_the_splits(tables, task):
    rows = [frozenset(texts(row)) for split in SPLITS for row in tables[f"{task}-{split}"][1:]]
    assert len(set(rows)) == len(rows)


@pytest.mark.parametrize("task", TASKS)
def test_dev_uses_words_that_train_lacks(tables, task):
    words = {s: {word for row in tables[f"{task}-{s}"][1:] for word in " ".join(texts(row)).split()} for s in SPLITS}
    assert len(words["dev"] - words["train"]) > 10


def test_sentences_are_finished(tables):
    for table in tables.values():
        for row in table[1:]:
            for text in texts(row):
                assert text[0].isupper()
                assert text[-1] in ".?"
                assert not set(text) & set("{}=*;|\t") - {";"}
                assert "  " not in text


def test_shared_words_do_not_give_duplicates_away(tables):
    train, dev = (tables[f"questions-{split}"][1:] for split in SPLITS)
    answers = tfidf_predictions("binary", [texts(r) for r in train], [int(r[-1]) for r in train], [texts(r) for r in dev])
    assert (answers == [int(row[-1]) for row in dev]).mean() < 0.75
