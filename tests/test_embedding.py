"""`teabert embed`: vectors of a file of any size, row by row as the predictor gives them."""

import json
import os
import sys

import numpy as np
import pytest

from predictors import write_run
from teabert import cli, embedding, load
from teabert.embedding import Embedded, embed
from teabert.errors import UserError
from teabert.progress import Quiet

TEXTS = ["the film was good", "how do I cook rice?", "dull", "why not learn", "nice plot", "not nice", "a book", "x y z"]


@pytest.fixture(scope="module")
def run(tmp_path_factory, text):
    return write_run(tmp_path_factory.mktemp("runs") / "run", text, "attention")


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(embedding, "ROWS", 3)


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize(
    ("task", "column", "name"),
    [("mood", None, "sentence"), ("mood", None, "text"), ("same", None, "one"), ("kin", "two", "two")],
)
def test_vectors_are_those_of_the_predictor(run, tmp_path, task, column, name):
    source = write(tmp_path / "rows.jsonl", [{name: text} for text in TEXTS])
    done = embed(run, task, column, source, tmp_path / "new" / "vectors.npy", Quiet())
    assert done == Embedded(8, 32, 0)
    found = np.load(tmp_path / "new" / "vectors.npy", mmap_mode="r")
    assert found.dtype == np.float32
    assert found == pytest.approx(load(run).embed(TEXTS, task), abs=1e-5)
    assert os.listdir(tmp_path / "new") == ["vectors.npy"]


def test_joined_pairs_have_one_vector_each(run, tmp_path):
    source = write(tmp_path / "rows.jsonl", [{"one": text, "two": "rice"} for text in TEXTS])
    embed(run, "near", None, source, tmp_path / "vectors.npy", Quiet())
    expected = load(run).embed([(text, "rice") for text in TEXTS], "near")
    assert np.load(tmp_path / "vectors.npy") == pytest.approx(expected, abs=1e-5)


def test_rows_without_a_usable_text_are_not_a_number(run, tmp_path):
    source = tmp_path / "rows.csv"
    source.write_bytes(b"sentence,x\na film,1\n,2\nonly\n\xff,3\na plot,4\n")
    assert embed(run, "mood", None, source, tmp_path / "vectors.npy", Quiet()) == Embedded(5, 32, 3)
    found = np.load(tmp_path / "vectors.npy")
    assert np.isnan(found).all(axis=1).tolist() == [False, True, True, True, False]
    assert found[[0, 4]] == pytest.approx(load(run).embed(["a film", "a plot"], "mood"), abs=1e-5)


@pytest.mark.parametrize(
    ("task", "column", "row", "message"),
    [
        ("heard", None, {"one": "a"}, "in the light of the other"),
        ("near", "one", {"one": "a"}, "--column is for tasks that read one text at a time"),
        ("mood", "nowhere", {"one": "a"}, "has no 'nowhere'"),
        ("mood", None, {"one": "a"}, "has no 'sentence'"),
        (None, None, {"one": "a"}, "Say which task"),
    ],
)
def test_what_has_no_vector_is_refused_in_words(run, tmp_path, task, column, row, message):
    source = write(tmp_path / "rows.jsonl", [row])
    with pytest.raises(UserError, match=message):
        embed(run, task, column, source, tmp_path / "vectors.npy", Quiet())
    assert os.listdir(tmp_path) == ["rows.jsonl"]


def test_target_that_cannot_be_written_is_named(run, tmp_path):
    source = write(tmp_path / "rows.jsonl", [{"text": "a"}])
    with pytest.raises(UserError, match="cannot be written"):
        embed(run, "mood", None, source, source / "vectors.npy", Quiet())


def test_command_says_what_it_wrote(run, tmp_path, monkeypatch, capsys):
    source = write(tmp_path / "rows.jsonl", [{"text": "a film"}, {"text": ""}])
    arguments = ["embed", run, "--task", "mood", "--input", source, "--out", tmp_path / "vectors.npy", "--quiet"]
    monkeypatch.setattr(sys, "argv", ["teabert", *map(str, arguments)])
    with pytest.raises(SystemExit, match="0"):
        cli.main()
    assert "2 x 32" in capsys.readouterr().out
    assert np.load(tmp_path / "vectors.npy").shape == (2, 32)
