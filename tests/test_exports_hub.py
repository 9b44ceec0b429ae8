"""A folder for the hub: it loads as the run does, its card says what the run folder says, nothing private is in."""

import json

import numpy as np
import pytest
import yaml

import exported
import teabert
import tiny
from exported import PAIRS, SINGLE, make_run, opened, own_outputs, pair, single
from teabert import parse_recipe, train
from teabert.adding import add_task
from teabert.calibration import FILE as CALIBRATION
from teabert.exports import export
from teabert.exports.card import METRICS as NAMES
from teabert.metrics import METRICS

TASKS = {
    "mood": single("classes", "mean") | {"files": "hub:org/moods:small", "max_tokens": 20},
    "near": pair("score") | {"files": {"train": "/home/me/near.tsv", "dev": "~/near-dev.tsv"}, "source": "our own; CC0"},
    "tags": single("multilabel") | {"clean": "lower", "labels": ["x|y", "z"]},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    place = tmp_path_factory.mktemp("secret-machine")
    return make_run(place / "run", TASKS, injection=["input", "gate"], encoder=str(place / "my-encoder"), data=str(place))


@pytest.fixture
def out(run, tmp_path):
    return export(run.path, "hub", out=tmp_path / "out").path


def front(out):
    return yaml.safe_load((out / "README.md").read_text().split("---\n")[1])


def test_folder_loads_and_answers_as_the_run(run, out):
    ours, theirs = opened(run), teabert.load(out, device="cpu", precision="fp32")
    for name in TASKS:
        texts = PAIRS if name == "near" else SINGLE
        assert np.array_equal(own_outputs(theirs, name, texts), own_outputs(ours, name, texts))


def test_no_path_of_this_machine_is_in_it(run, out):
    for file in out.rglob("*"):
        if file.suffix in (".md", ".json", ".yaml"):
            content = file.read_text()
            assert "secret-machine" not in content, file
            assert "/home/me" not in content, file
            assert "~/" not in content, file
    assert "processor" not in json.loads((out / "run.json").read_text())
    assert teabert.load(out).run.recipe.encoder == "my-encoder"


def test_neither_rows_nor_checkpoints_are_in_it(tmp_path):
    world = tiny.write_world(tmp_path / "world")
    run = train(parse_recipe(tiny.recipe(world, epochs=1)), tmp_path / "run")
    out = export(run.path, "hub", out=tmp_path / "out").path
    names = {str(file.relative_to(out)) for file in out.rglob("*") if file.is_file()}
    kept = {"README.md", "recipe.yaml", "run.json", "scores.json", "encoder.json", "tokenizer.json"}
    assert names == kept | {"best/model.safetensors", "best/scores.json", "best/checksums.json"}
    text = next(line.split("\t")[1] for line in (world / "data" / "mood-dev.tsv").read_text().splitlines()[1:])
    assert all(text not in (out / name).read_text() for name in kept)
    card = (out / "README.md").read_text()
    scores = run.scores()
    assert all(f"{metric} {value:.4f}" in card for found in scores["tasks"].values() for metric, value in found.items())
    assert all(f"| {task} | 24 | {run.recipe.train.seed} |" in card for task in scores["tasks"])


def test_added_tasks_go_along(tmp_path):
    world = tiny.write_world(tmp_path / "world")
    given = tiny.recipe(world, epochs=1)
    tasks = given["tasks"]
    more = {"tasks": {"again": tasks.pop("same")}, "train": {"epochs": 1, "seed": 7}}
    run = train(parse_recipe(given | {"injection": "gate"}), tmp_path / "run")
    more["tasks"]["again"]["files"] = str(world / "data" / "same-{split}.tsv")
    add_task(run.path, more)
    out = export(run.path, "hub", out=tmp_path / "out").path
    theirs = teabert.load(out, device="cpu", precision="fp32")
    assert list(theirs.tasks) == ["mood", "near", "again"]
    assert np.array_equal(own_outputs(theirs, "again", PAIRS), own_outputs(opened(run), "again", PAIRS))
    assert theirs.tasks["again"].files == "same-{split}.tsv"
    assert str(world).encode() not in (out / "tasks" / "again.task.safetensors").read_bytes()
    assert "| again | 24 | 7 | accuracy" in (out / "README.md").read_text()


def test_calibration_goes_along(run, out, tmp_path):
    assert not (out / CALIBRATION).exists()
    (run.path / CALIBRATION).write_text("{}\n")
    try:
        assert (export(run.path, "hub", out=tmp_path / "more").path / CALIBRATION).read_text() == "{}\n"
    finally:
        (run.path / CALIBRATION).unlink()


def test_front_matter_says_only_what_is_known(out):
    found = front(out)
    assert "license" not in found
    assert "base_model" not in found
    assert found["datasets"] == ["org/moods"]
    assert found["library_name"] == "teabert"
    assert set(found["metrics"]) == {"accuracy", "f1", "pearsonr", "spearmanr"}


def test_licence_of_a_known_encoder_and_what_it_was_tuned_on_are_said(tmp_path):
    run = make_run(tmp_path / "run", TASKS, encoder="minilm")
    out = export(run.path, "hub", out=tmp_path / "out").path
    assert front(out)["license"] == "apache-2.0"
    assert front(out)["base_model"] == "sentence-transformers/all-MiniLM-L6-v2"
    assert "Quora duplicate questions" in (out / "README.md").read_text()


def test_every_metric_has_a_name_on_the_hub():
    assert NAMES.keys() == METRICS.keys()


def test_card_tells_tasks_data_limits_and_how_to_use_it(run, out, capsys):
    card = (out / "README.md").read_text()
    assert "| near | one + two (together) | score | 1 to 5 | none |  |" in card
    assert "| tags | text | multilabel | x\\|y, z | lower |  |" in card
    assert "| near | our own; CC0 |" in card
    assert "| mood | org/moods |" in card
    assert "| tags | not stated in the recipe;" in card
    model = opened(run).model
    assert f"| encoder | {sum(each.numel() for each in model.encoder.parameters()):,} |" in card
    assert "`input + gate`" in card
    exec(exported.snippet(out), {})
    assert "mood" in capsys.readouterr().out


def test_task_that_gives_one_answer_only_is_named_as_a_limit(tmp_path):
    run = make_run(tmp_path / "run", TASKS)
    run.save_scores(run.scores() | {"collapsed": ["near"]})
    card = (export(run.path, "hub", out=tmp_path / "out").path / "README.md").read_text()
    assert "one and the same answer to every judged row of: near" in card


def test_card_of_a_run_that_nobody_judged_says_so(tmp_path):
    run = make_run(tmp_path / "run", TASKS)
    run.save_scores({})
    out = export(run.path, "hub", out=tmp_path / "out").path
    assert "None: this model was never judged." in (out / "README.md").read_text()
