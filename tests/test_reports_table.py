"""A table's page: ours beside the paper's, seeds, costs and figures; what `teabert table` writes, and never would."""

import base64
import json

import pytest

import tiny
from reported import page_of
from teabert.errors import UserError
from teabert.experiments.jobs import Choices
from teabert.experiments.running import run_table
from teabert.reports import report

HOSTILE = '<script>alert("1")</script>'
FIGURE = '<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"><script>alert(2)</script></svg>'


def cell(*values, deviation=None):
    return {"mean": sum(values) / len(values), "deviation": deviation, "values": values, "runs": ["a"]}


def run_of(seed):
    encoder = {"name": "mpnet", "sha256": "0", "weights": "fp32"}
    facts = {"commit": "0123abc", "hardware": "one GPU", "precision": "bf16", "seconds": 61.4}
    return {"key": "a", "seed": seed, "part": "", "encoder": encoder} | facts


TABLE = {
    "name": "small",
    "title": "A small table",
    "columns": ["sst", "mean"],
    "measures": ["parameters"],
    "metrics": {"sst": "accuracy"},
    "counted": False,
    "notes": ["Encoder: mpnet, tuned on Quora."],
    "rows": [
        {
            "name": "input",
            "seeds": [1, 2],
            "scores": {"sst": cell(0.5, 0.52, deviation=0.0141), "mean": cell(0.6, 0.7, deviation=0.0707)},
            "measures": {"parameters": cell(22713216.0, 22713216.0, deviation=0.0)},
            "paper": {"sst": 0.483},
            "runs": [run_of(1), run_of(2)],
            "seconds": 61.4,
        },
        {
            "name": "none",
            "seeds": [1],
            "scores": {"sst": cell(0.4), "mean": cell(0.7)},
            "collapsed": ["sts"],
            "missing": 2,
        },
        {"name": "worst", "error": "seed 1: out of memory"},
    ],
}


@pytest.fixture
def write(tmp_path):
    """A table.json in a folder of its own"""

    def written(content):
        (tmp_path / "table.json").write_text(content if isinstance(content, str) else json.dumps(content))
        return tmp_path

    return written


def test_ours_stands_beside_the_paper_s_with_deviations(write):
    page = page_of(report(write(TABLE)).path)
    rows = page.tables["A small table"]
    assert rows[0] == ["row", "sst, Acc", "±", "paper", "mean", "±"]
    assert rows[1] == ["input", "0.510", "0.014", "0.483", "0.650", "0.071"]
    assert rows[2] == ["none", "0.400", "–", "–", "0.700", "–"]
    assert rows[3] == ["worst", "–", "–", "–", "–", "–"]
    assert page.tables["Mean over seeds and standard deviation"][1] == ["input", "22,713,216", "0"]
    assert page.tables["Every seed"][1:4] == [
        ["input", "1", "0.500", "0.600", "22,713,216"],
        ["input", "2", "0.520", "0.700", "22,713,216"],
        ["none", "1", "0.400", "0.700", "–"],
    ]
    assert page.tables["Every run"][1] == ["input", "all", "1", "mpnet", "fp32", "bf16", "0123abc", "one GPU", "61"]


def test_best_of_each_column_is_bold(write):
    content = report(write(TABLE)).path.read_text()
    assert "<strong>0.510</strong>" in content
    assert "<strong>0.700</strong>" in content
    assert content.count("<td><strong>") == 2


def test_what_cannot_be_taken_as_it_stands_is_said_first(write):
    page = page_of(report(write(TABLE)).path)
    assert "worst failed: seed 1: out of memory" in page.text
    assert "none: every row of sts got one answer." in page.text
    assert "2 runs are missing of none." in page.text
    assert "Encoder: mpnet, tuned on Quora." in page.text
    assert "2 of 3 rows, 2 seeds" in page.text


def test_figures_are_inside_the_page_as_images_that_can_do_nothing(write):
    folder = write(TABLE)
    (folder / "figure.svg").write_text(FIGURE)
    path = report(folder).path
    page = page_of(path)
    (image,) = page.tags("img")
    assert base64.b64decode(image["src"].removeprefix("data:image/svg+xml;base64,")).decode() == FIGURE
    assert image["alt"] == "A small table, drawn; the numbers stand in the table above"
    assert "://" not in path.read_text()
    assert not page.tags("script")


def test_names_in_the_file_stay_text(write):
    row = TABLE["rows"][0] | {"name": HOSTILE, "error": HOSTILE, "collapsed": [HOSTILE]}
    row |= {"scores": {HOSTILE: cell(0.5)}, "runs": [run_of(1) | {"hardware": HOSTILE, "commit": HOSTILE}]}
    given = TABLE | {
        "title": HOSTILE,
        "columns": [HOSTILE],
        "notes": [HOSTILE],
        "rows": [row],
        "metrics": {HOSTILE: "none"},
    }
    page = page_of(report(write(given)).path)
    assert not page.tags("script")
    assert page.tables[HOSTILE][0][:2] == ["row", HOSTILE]
    assert page.tables[HOSTILE][1][0] == HOSTILE


def test_numbers_behind_the_page_are_given(write):
    made = report(write(TABLE))
    assert made.numbers["rows"][0]["scores"]["sst"]["values"] == [0.5, 0.52]
    assert made.as_json()["page"] == str(made.path)


def test_least_that_a_table_holds_is_enough(write):
    page = page_of(report(write({"name": "t", "title": "T", "columns": [], "rows": []})).path)
    assert [given["id"] for given in page.tags("section")] == ["table"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "table.json is damaged"),
        ("[" * 100_000, "table.json is damaged"),
        ("[]", "does not fit"),
        ("{}", "'rows' is missing"),
        (json.dumps(TABLE | {"rows": [{"name": "a", "scores": {"sst": {"mean": "high"}}}]}), "mean"),
    ],
)
def test_damaged_table_is_refused_in_words(write, content, message):
    folder = write(content)
    with pytest.raises(UserError, match=message):
        report(folder)
    assert not (folder / "report.html").exists()


def test_what_teabert_table_writes_is_shown(tmp_path):
    encoder = tiny.write_encoder(tmp_path / "encoder")
    done = run_table("task-attention-parameters", Choices(encoder=str(encoder)), tmp_path / "results")
    page = page_of(report(done.folder).path)
    rows = page.tables[done.summary["title"]]
    assert [row[0] for row in rows[1:]] == [row["name"] for row in done.summary["rows"]]
    first = done.summary["rows"][0]["scores"]["sst"]["mean"]
    assert rows[1][1] == f"{first:,.0f}"
    assert all(note in page.text for note in done.summary["notes"])
