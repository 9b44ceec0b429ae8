"""The papers' numbers beside a run's, for their tasks only, and what is said of the encoder."""

import json
import shutil

import pytest

import tiny
from reported import page_of
from teabert import parse_recipe, train
from teabert.catalogue import ENCODERS
from teabert.reports import report
from teabert.reports.papers import REPORTED, encoder_name, encoder_note, encoder_of, is_papers, quora_note
from teabert.tasks import TASKS, make_task

COLUMNS = {"sst": "id\tsentence\tsentiment", "quora": "id\tsentence1\tsentence2\tis_duplicate"}
COLUMNS["sts"] = "id\tsentence1\tsentence2\tsimilarity"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The papers' tasks in the course's layout, on rows of our own"""
    world = tiny.write_world(tmp_path_factory.mktemp("world"))
    for split in ("train", "dev"):
        for name, other in (("sst", "mood"), ("quora", "same"), ("sts", "near")):
            rows = (world / "data" / f"{other}-{split}.tsv").read_text().splitlines()[1:]
            file = world / "data" / TASKS[name].file(split)
            file.parent.mkdir(exist_ok=True)
            file.write_text("\n".join([COLUMNS[name], *rows]) + "\n")
    given = tiny.recipe(world, epochs=1) | {"tasks": ["sst", "quora", "sts"]}
    return train(parse_recipe(given), world / "run").path


def test_papers_numbers_stand_beside_ours(run):
    made = report(run)
    page = page_of(made.path)
    rows = page.tables["This run and the papers, dev"]
    score = made.numbers["scores"]["sst"]["accuracy"]["value"]
    assert rows[1] == ["sst", "this run", "accuracy", f"{score:.3f}", ""]
    known = {row[1]: row[3] for row in rows if row[0] == "quora"}
    assert known["TEA-BERT: input, its best mean"] == "0.706"
    assert known["Task-specific attention: task attention"] == "0.843"
    by = {row[1]: row[4] for row in rows if row[0] == "sst"}
    assert float(by["Task-specific attention: mean pooling"].replace("−", "-")) == pytest.approx(score - 0.515, abs=6e-4)
    assert "not bert-base-uncased, which both papers used" in page.text
    assert "Hollow: what the papers report." in page.text
    assert [len(each) for each in made.numbers["papers"].values()] == [5, 5, 5]


def test_encoder_that_knows_quora_is_named_by_its_weights(run, tmp_path):
    copied = shutil.copytree(run, tmp_path / "run")
    facts = json.loads((copied / "run.json").read_text())
    facts["encoder"]["sha256"] = ENCODERS["mpnet"].sha256
    (copied / "run.json").write_text(json.dumps(facts))
    assert (
        "all-mpnet-base-v2 was tuned on Quora questions: its score on quora is higher" in page_of(report(copied).path).text
    )
    assert "was tuned on Quora questions" not in page_of(report(run).path).text


def test_frozen_runs_stand_beside_frozen_rows():
    assert {row.mode for row in REPORTED} == {"frozen", "finetune"}
    frozen = {row.row: row.of("sts") for row in REPORTED if row.mode == "frozen"}
    assert frozen == {"first token": 0.298, "mean pooling": 0.643, "task attention": 0.251}


def test_task_of_the_same_name_with_other_rows_is_not_the_papers():
    assert is_papers(TASKS["sst"])
    assert not is_papers(make_task("sst", {"files": "mine-{split}.csv"}, "sst"))
    assert not is_papers(TASKS["more-cola"])


@pytest.mark.parametrize(
    ("encoder", "name", "note", "warned"),
    [
        ("minilm", "all-MiniLM-L6-v2", "including Quora duplicate questions", True),
        ("sentence-transformers/all-mpnet-base-v2", "all-mpnet-base-v2", "including Quora duplicate questions", True),
        ("google-bert/bert-base-uncased", "bert-base-uncased", "as in both papers", False),
        ("roberta-base", "roberta-base", "raw text only", False),
        ("someone/else", "someone/else", "not known to teabert", False),
        ("/home/me/secret/folder", "folder (a local folder)", "not known to teabert", False),
    ],
)
def test_what_is_said_of_the_encoder(encoder, name, note, warned):
    recipe = parse_recipe({"encoder": encoder, "tasks": ["quora"]})
    known = encoder_of(recipe, {})
    assert encoder_name(recipe, known) == name
    assert note in encoder_note(recipe, known)
    assert (quora_note(recipe, known) is not None) == warned
