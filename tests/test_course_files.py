"""The course's unlabelled test files, broken headers and all -> prediction files as its grader takes them."""

import csv
import random
import re

import pytest

import teabert
import tiny
from teabert.config import parse_recipe
from teabert.predicting import Given, Predicting, Wanted
from teabert.progress import Quiet

TEST_ROWS = {"sst": 2_210, "quora": 4_000, "sts": 1_725, "cfimdb": 488}
LINES = {
    "sst": ("id \t Predicted_Sentiment \n", r"[0-9a-f]{25} , [0-4] \n"),
    "quora": ("id \t Predicted_Is_Paraphrase \n", r"[0-9a-f]{25} , [01]\.0 \n"),
    "sts": ("id \t Predicted_Similiary \n", r"[0-9a-f]{25} , -?\d+(\.\d+)?(e-\d+)? \n"),
    "cfimdb": ("id \t Predicted_Sentiment \n", r"[0-9a-f]{25} , [01] \n"),
}
HEADERS = {  # of the files with labels, and of those without: two unnamed columns instead of one where texts are single
    "ids-sst": ("\tid\tsentence\tsentiment", "0\t\tid\tsentence"),
    "ids-cfimdb": ("\tid\tsentence\tsentiment", "0\t\tid\tsentence"),
    "quora": ("\tid\tsentence1\tsentence2\tis_duplicate", "\tid\tsentence1\tsentence2"),
    "sts": ("\tid\tsentence1\tsentence2\tsimilarity", "\tid\tsentence1\tsentence2"),
}
LABELS = {"ids-sst": "01234", "ids-cfimdb": "01", "quora": ["0.0", "1.0"], "sts": ["0.0", "2.25", "3.8", "5.0"]}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A data folder in the course's layout with rows of our own"""
    folder, draw = tmp_path_factory.mktemp("data") / "cs224n", random.Random(0)
    folder.mkdir()
    for name, (labelled, bare) in HEADERS.items():
        for split, rows in (("train", 20), ("dev", 6), ("test-student", 5)):
            lines = [bare if split == "test-student" else labelled]
            for row in range(rows):
                index = [str(row), f"{row}.0"] if lines[0].startswith("0") else [str(row)]
                texts = [f' the "{draw.choice(tiny.WORDS)}" film' for _ in range(1 + name.startswith(("quora", "sts")))]
                cells = ['"{}"'.format(text.replace('"', '""')) for text in texts]
                label = [] if split == "test-student" else [LABELS[name][row % len(LABELS[name])]]
                lines.append("\t".join([*index, f"{draw.getrandbits(100):025x}", *cells, *label]))
            (folder / f"{name}-{split}.csv").write_text("\n".join(lines) + "\n")
    return folder.parent


def check_predictions(data, folder):
    """A run on these files, and its prediction files; returns their ids"""
    tiny.write_encoder(folder / "encoder")
    given = {
        "encoder": str(folder / "encoder"),
        "data": str(data),
        "tasks": {task: {"take": 8, "max_tokens": 16} for task in LINES},
        "train": {"epochs": 1, "precision": "fp32", "select": 0.5},
    }
    run = teabert.train(parse_recipe(given), folder / "run")
    found = {}
    for task, (first, rest) in LINES.items():
        file = folder / f"{task}-test-output.csv"
        Predicting(run.path, Given(split="test"), Wanted(task, "cs224n"), Quiet()).write(file)
        title, *lines = file.read_text().splitlines(keepends=True)
        assert title == first
        assert all(re.fullmatch(rest, line) for line in lines)
        found[task] = [line.split()[0] for line in lines]
    return found


def test_every_row_of_a_test_file_is_answered_under_its_id(written, tmp_path):
    found = check_predictions(written, tmp_path)
    for task, name in (("sst", "ids-sst"), ("quora", "quora"), ("sts", "sts"), ("cfimdb", "ids-cfimdb")):
        with (written / "cs224n" / f"{name}-test-student.csv").open(newline="") as file:
            rows = list(csv.reader(file, delimiter="\t"))
        assert found[task] == [row[rows[0].index("id")] for row in rows[1:]]


def test_the_real_test_files_are_answered_whole(real_data, tmp_path):
    found = check_predictions(real_data, tmp_path)
    assert {task: len(set(ids)) for task, ids in found.items()} == TEST_ROWS
