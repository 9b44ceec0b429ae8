"""The course's prediction files are written from what runs kept, as the model itself would write them."""

import json

import pytest
from typer.testing import CliRunner

import tiny
from teabert import cli
from teabert.errors import UserError
from teabert.experiments import TABLES
from teabert.experiments.base import Row, Table
from teabert.experiments.jobs import Choices
from teabert.experiments.results import Results
from teabert.experiments.running import How, run_table
from teabert.experiments.submitting import submit

COURSE = {"mood": "Predicted_Sentiment", "same": "Predicted_Is_Paraphrase", "near": "Predicted_Similiary"}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    world = tiny.write_world(tmp_path_factory.mktemp("world"))
    for name in COURSE:
        lines = (world / "data" / f"{name}-dev.tsv").read_text().splitlines()
        unlabelled = ["\t".join(line.split("\t")[:-1]) for line in lines[:10]]
        (world / "data" / f"{name}-test.tsv").write_text("\n".join(unlabelled) + "\n")
    return world


@pytest.fixture(scope="module")
def table(world):
    recipe = tiny.recipe(world, epochs=2)
    for name, column in COURSE.items():
        recipe["tasks"][name] |= {"course_column": column, "course_name": name}
    return Table("toy", "A toy", (Row("plain", recipe), Row("injected", recipe, ("injection=input",))), (*COURSE, "mean"))


@pytest.fixture(scope="module")
def done(table, tmp_path_factory):
    return run_table(table, Choices(seeds=2), tmp_path_factory.mktemp("results"), How(keep_models=True)).folder.parent


@pytest.fixture
def listed(monkeypatch, table):
    monkeypatch.setitem(TABLES, "toy", table)


def test_the_files_are_those_that_the_model_writes(listed, done, tmp_path):
    files = submit("toy/injected", Choices(seeds=2), done, tmp_path)
    assert [file.name for file in files] == [*(f"{name}-test-output.csv" for name in COURSE), "predictions.json"]
    about = json.loads(files[-1].read_text())
    runs = [record for record in Results(done).by_key().values() if record["row"] == "injected"]
    means = {each["key"]: sum(next(iter(scores.values())) for scores in each["scores"].values()) for each in runs}
    assert {each["key"] for each in about} == {max(means, key=means.get)}
    for name in COURSE:
        arguments = ["predict", str(done / "runs" / about[0]["key"]), "--task", name, "--split", "test"]
        out = tmp_path / f"{name}.csv"
        shown = CliRunner().invoke(cli.app, [*arguments, "--format", "cs224n", "--out", str(out), "--quiet"])
        assert shown.exit_code == 0, shown.output
        expected, found = (file.read_text().splitlines() for file in (out, tmp_path / f"{name}-test-output.csv"))
        assert found[0] == expected[0]
        assert len(found) == len(expected) == 10
        for mine, theirs in zip(found[1:], expected[1:], strict=True):
            assert mine.split(" , ")[0] == theirs.split(" , ")[0]
            assert float(mine.split(" , ")[1]) == pytest.approx(float(theirs.split(" , ")[1]), abs=1e-4)


def test_of_a_table_the_best_row_answers(listed, done, tmp_path):
    submit("toy", Choices(seeds=2), done, tmp_path)
    means = {}
    for record in Results(done).by_key().values():
        means.setdefault(record["row"], []).append(sum(next(iter(each.values())) for each in record["scores"].values()))
    best = max(means, key=lambda row: sum(means[row]))
    assert {each["row"] for each in json.loads((tmp_path / "predictions.json").read_text())} == {best}


def test_what_is_missing_is_said(listed, done, tmp_path):
    with pytest.raises(UserError, match="has no row 'nothing'"):
        submit("toy/nothing", Choices(seeds=2), done, tmp_path)
    with pytest.raises(UserError, match="holds no whole run"):
        submit("toy", Choices(seeds=2), tmp_path, tmp_path)
