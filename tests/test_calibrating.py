"""`teabert calibrate`: a temperature fitted on rows that the model does not know, kept beside it and used from then on."""

import json
import shutil
import sys

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

import tiny
from teabert import cli, load, parse_recipe, train
from teabert.calibrating import calibrate
from teabert.errors import UserError
from teabert.progress import Progress, Quiet


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    world = tiny.write_world(tmp_path_factory.mktemp("world"))
    return train(parse_recipe(tiny.recipe(world, epochs=1)), world / "run").path


@pytest.fixture
def run(trained, tmp_path):
    """A copy that may be calibrated"""
    return shutil.copytree(trained, tmp_path / "run")


@pytest.fixture(scope="module")
def drawn(trained):
    """Texts that the model has not seen, and labels that are surer than it is: as it would say six times as loudly"""
    draw = np.random.default_rng(3)
    texts = [" ".join([*draw.choice(tiny.WORDS, 9), "fresh"]) for _ in range(200)]
    logs = np.log([list(answer.probabilities.values()) for answer in load(trained).predict(texts, task="mood")])
    chances = np.exp(log_softmax(6 * logs, axis=1))
    return texts, [str(draw.choice(5, p=row)) for row in chances]


@pytest.fixture
def rows(tmp_path, drawn):
    """These as a file"""
    lines = [f"{number}\t{text}\t{label}" for number, (text, label) in enumerate(zip(*drawn, strict=True))]
    file = tmp_path / "fresh.tsv"
    file.write_text("\n".join(["id\tsentence\tmood", *lines]) + "\n")
    return file


def cells(file):
    return [line.split("\t") for line in file.read_text().splitlines()[1:]]


def test_fitted_temperature_is_kept_and_used(run, rows):
    before = load(run).predict([text for _, text, _ in cells(rows)], task="mood")
    fitted = calibrate(run, "mood", rows, Quiet())
    logs = np.log([list(answer.probabilities.values()) for answer in before])
    labels = np.array([int(label) for _, _, label in cells(rows)])

    def loss(place):
        return -log_softmax(logs / np.exp(place), axis=1)[np.arange(len(labels)), labels].mean()

    best = minimize_scalar(loss, bounds=(np.log(0.06), np.log(19)), method="bounded")
    assert fitted.temperature == pytest.approx(np.exp(best.x), rel=1e-2)
    assert fitted.loss_before == pytest.approx(loss(0), abs=1e-5)
    assert (fitted.rows, fitted.source) == (200, "fresh.tsv")
    assert 0.06 < fitted.temperature < 0.6
    assert fitted.loss_after < fitted.loss_before
    after = load(run).predict([text for _, text, _ in cells(rows)], task="mood")
    assert [answer.label for answer in after] == [answer.label for answer in before]
    found = np.array([list(answer.probabilities.values()) for answer in after])
    assert found == pytest.approx(np.exp(log_softmax(logs / fitted.temperature, axis=1)), abs=1e-5)


def test_scores_stay_as_they_were_and_other_tasks_keep_their_temperature(run, rows):
    calibrate(run, "mood", rows, Quiet())
    pairs = rows.with_name("pairs.tsv")
    lines = (f"{number}\t{text}\tdog\t{int(label) % 2}" for number, text, label in cells(rows))
    pairs.write_text("id\tone\ttwo\tsame\n" + "\n".join(lines) + "\n")
    calibrate(run, "same", pairs, Quiet())
    kept = json.loads((run / "calibration.json").read_text())
    assert list(kept) == ["mood", "same"]
    assert kept["mood"]["source"] == "fresh.tsv"
    assert load(run).evaluate("dev").as_json()["tasks"] == json.loads((run / "scores.json").read_text())["tasks"]


@pytest.mark.parametrize(("split", "how"), [("dev", "scored"), ("train", "trained")])
def test_rows_that_the_model_knows_are_refused(run, rows, trained, split, how):
    known = cells(trained.parent / "data" / f"mood-{split}.tsv")[4]
    with rows.open("a") as file:
        file.write(f"known\t{known[1]}\t3\n")
    with pytest.raises(UserError, match=rf"1 of its 201 rows \(row known\) have texts that the model was {how} on"):
        calibrate(run, "mood", rows, Quiet())
    assert not (run / "calibration.json").exists()


def test_rows_that_cannot_be_compared_are_said_to_be_so(run, rows, trained):
    data = trained.parent / "data"
    data.rename(data.with_name("elsewhere"))
    said = []

    class Heard(Progress):
        def note(self, text):
            said.append(text)

    try:
        calibrate(run, "mood", rows, Heard())
    finally:
        data.with_name("elsewhere").rename(data)
    assert "is not checked" in said[0]
    assert (run / "calibration.json").exists()


@pytest.mark.parametrize(
    ("task", "content", "message"),
    [
        ("near", "one\ttwo\tnear\na\tb\t1\n", "'near' answers with scores"),
        ("mood", "sentence\tmood\na film\t\n", "there is no label"),
        ("mood", "sentence\na film\n", "has no column 'mood'"),
        (None, "sentence\tmood\na\t1\n", "Say which task"),
    ],
)
def test_rows_that_calibrate_nothing_are_refused_in_words(run, tmp_path, task, content, message):
    (tmp_path / "rows.tsv").write_text(content)
    with pytest.raises(UserError, match=message):
        calibrate(run, task, tmp_path / "rows.tsv", Quiet())


def test_command_prints_before_and_after(run, rows, monkeypatch, capsys):
    for more in ([], ["--json"]):
        monkeypatch.setattr(
            sys, "argv", ["teabert", "calibrate", str(run), "--task", "mood", "--input", str(rows), "--quiet", *more]
        )
        with pytest.raises(SystemExit, match="0"):
            cli.main()
    out = capsys.readouterr().out
    assert "Fitted on 200 rows" in out
    fitted = json.loads(out[out.index("{") :])
    assert f"{fitted['temperature']:.4f}" in out.split("{")[0]
