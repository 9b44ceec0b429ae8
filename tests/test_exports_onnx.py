"""All tasks in one ONNX graph: onnxruntime answers as the run itself, whatever the batch; in eight bits nearly so."""

import json
import sys
from functools import cache

import numpy as np
import onnx
import pytest
import torch

import exported
import tiny
from exported import close, make_run, opened, pair, single, task_of
from teabert import parse_recipe, train
from teabert.batches import collate
from teabert.errors import UserError
from teabert.exports import export
from teabert.exports import onnx as onnx_export
from teabert.exports.padded import PaddedModel
from teabert.exports.running import answers, feed, open_session, random_rows
from teabert.heads import ANSWERS, READERS, Reader
from teabert.injections import INJECTIONS

SMALL = {"pal": {"width": 12, "attention_heads": 3}, "lora": {"rank": 2}, "adapter": {"size": 5}, "prefix": {"length": 3}}
METHODS = [{"method": name, **SMALL.get(name, {})} for name in INJECTIONS]
HEADS = {f"{reader}-{answer}": task_of(reader, answer) for reader in READERS for answer in ANSWERS}
THREE = {"mood": single("classes", "mean"), "near": pair("score"), "same": HEADS["mean-difference"]}
ONCE = dict(list(HEADS.items())[:: len(ANSWERS) + 1]) | {f"mean-{answer}": HEADS[f"mean-{answer}"] for answer in ANSWERS}
"""Every reader, every answer; that each goes with each is seen without the graph"""
MORE = {
    "linear": single("classes", {"method": "task_attention", "layers": 2, "feed_forward": False}),
    "mean": single("score", "mean", stretch="sigmoid"),
    "crossed": pair(
        "binary",
        {"method": "task_attention", "layers": 2, "bare_last": False, "exchange": True},
        True,
        answer="concatenated",
    ),
    "joined": pair("multilabel", "first_token"),
}
"""Every reader with every answer, and what their options change; two tasks are called as operators are."""


def rows_of(predictor, count=8):
    sequences = {name: predictor.tasks[name].sequences for name in predictor.model.tasks}
    shape = predictor.model.encoder.shape
    return random_rows(sequences, shape.vocabulary, shape.longest, count)


def batch_of(predictor, rows, pairs):
    return collate([(rows[name], row) for name, row in pairs], predictor.model.tasks)


def mixed(predictor):
    """Batches of one example, of one task, of a mix, of all"""
    names = predictor.model.tasks
    every = [(name, row) for row in range(3) for name in names]
    return [[(names[0], 0)], [(names[-1], 1)], [(names[0], row) for row in range(4)], every[:2], every]


def padded_answers(predictor, batch):
    padded = PaddedModel(predictor.model, predictor.tasks)
    wanted = {"input_ids", "attention_mask", "task_ids"} | ({"token_type_ids"} if padded.segmented else set())
    wanted |= {"second_row"} if padded.paired else set()
    given = feed(batch, predictor.model.encoder.shape.padding_id)
    with torch.no_grad():
        found = padded(**{name: torch.from_numpy(given[name]) for name in wanted})
    named = dict(zip(predictor.model.tasks, found, strict=True))
    return {part.task: named[part.task][part.first].numpy() for part in batch.parts}


@pytest.mark.parametrize("choice", [*METHODS, METHODS[1:]], ids=lambda choice: str(choice)[:30])
@pytest.mark.parametrize("family", ["bert", "mpnet"])
def test_padded_model_answers_as_the_packed_one_with_every_injection(tmp_path, family, choice):
    predictor = opened(make_run(tmp_path / "run", THREE, family, choice))
    for pairs in mixed(predictor):
        batch = batch_of(predictor, rows_of(predictor), pairs)
        with torch.no_grad():
            ours = predictor.model(batch)
        theirs = padded_answers(predictor, batch)
        assert all(close(theirs[name], ours[name]) for name in ours)


@pytest.mark.parametrize("family", exported.FAMILIES)
def test_padded_model_answers_as_the_packed_one_with_every_head(tmp_path, family):
    predictor = opened(make_run(tmp_path / "run", HEADS | MORE, family, ["input", "gate"]))
    for pairs in mixed(predictor):
        batch = batch_of(predictor, rows_of(predictor), pairs)
        with torch.no_grad():
            ours = predictor.model(batch)
        theirs = padded_answers(predictor, batch)
        assert all(close(theirs[name], ours[name]) for name in ours)


WHOLE = {"heads": (ONCE | MORE, "bert", "input"), "methods": (THREE, "mpnet", METHODS[1:])}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A name of WHOLE -> the predictor of its run, and its graph's folder"""

    @cache
    def made(name):
        tasks, family, injection = WHOLE[name]
        place = tmp_path_factory.mktemp(name)
        run = make_run(place / "run", tasks, family, injection)
        export(run.path, "onnx", out=place / "out")
        return opened(run), place / "out"

    return made


@pytest.mark.parametrize("name", WHOLE)
def test_graph_answers_as_the_run_with_every_method_and_head_in_any_batch(whole, name):
    predictor, out = whole(name)
    session = open_session(out / "model.onnx")
    onnx.checker.check_model(str(out / "model.onnx"), full_check=True)
    rows = rows_of(predictor)
    for pairs in mixed(predictor):
        batch = batch_of(predictor, rows, pairs)
        with torch.no_grad():
            ours = predictor.model(batch)
        theirs = answers(session, batch, predictor.model.encoder.shape.padding_id)
        assert theirs.keys() == ours.keys()
        assert all(close(theirs[name], ours[name], 1e-4) for name in ours)


def test_rows_of_other_tasks_are_not_numbers(whole):
    predictor, out = whole("heads")
    session = open_session(out / "model.onnx")
    given = feed(batch_of(predictor, rows_of(predictor), [("mean", 0), ("joined", 0)]), 0)
    mean, joined = session.run(["mean", "joined"], given)
    tasks = [predictor.model.tasks[number] for number in given["task_ids"]]
    assert [bool(np.isnan(row).all()) for row in mean] == [task == "joined" for task in tasks]
    assert [bool(np.isnan(row).all()) for row in joined] == [task == "mean" for task in tasks]
    assert np.isfinite(mean[tasks.index("mean")]).all()


def test_what_fills_up_does_not_matter(whole):
    predictor, out = whole("heads")
    session = open_session(out / "model.onnx")
    given = feed(batch_of(predictor, rows_of(predictor), [("mean", 0), ("mean", 1), ("linear", 2)]), 0)
    fills = {"input_ids": 7, "attention_mask": 0, "token_type_ids": 1}
    more = {name: np.pad(given[name], ((0, 0), (0, 3)), constant_values=fill) for name, fill in fills.items()}
    for theirs, ours in zip(
        session.run(["mean", "linear"], given | more), session.run(["mean", "linear"], given), strict=True
    ):
        assert np.allclose(theirs, ours, atol=1e-5, equal_nan=True)


def test_inputs_and_tasks_are_listed_for_programs(whole):
    predictor, out = whole("heads")
    facts = json.loads((out / "teabert.json").read_text())
    session = open_session(out / "model.onnx")
    assert {each.name for each in session.get_inputs()} == set(facts["inputs"])
    assert [each.name for each in session.get_outputs()] == [task["output"] for task in facts["tasks"]]
    assert [task["task_id"] for task in facts["tasks"]] == list(range(len(predictor.model.tasks)))


def test_a_model_without_pairs_apart_and_without_segments_asks_for_no_more_than_it_needs(tmp_path):
    run = make_run(tmp_path / "run", {"mood": single("classes")}, "distilbert", "lora")
    export(run.path, "onnx", out=tmp_path / "out")
    session = open_session(tmp_path / "out" / "model.onnx")
    assert [each.name for each in session.get_inputs()] == ["input_ids", "attention_mask", "task_ids"]


class OwnWay(Reader):
    """A reader that reads packs in a way of its own"""

    def forward(self, reading, part):
        return reading.first[part.first], None


def test_reader_without_a_padded_form_is_refused(tmp_path, monkeypatch):
    monkeypatch.setitem(READERS, "own_way", OwnWay)
    run = make_run(tmp_path / "run", {"mood": single("classes", "own_way")})
    with pytest.raises(UserError, match=r"'mood': the reader OwnWay.*first_token, mean"):
        export(run.path, "onnx", out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_graph_that_answers_otherwise_is_not_kept(tmp_path, monkeypatch):
    run = make_run(tmp_path / "run", {"mood": single("classes")})
    other = opened(make_run(tmp_path / "other", {"mood": single("classes")}, seed=5))
    write = onnx_export.write_graph
    wrong = PaddedModel(other.model, other.tasks)
    monkeypatch.setattr(onnx_export, "write_graph", lambda padded, file: write(wrong, file))
    with pytest.raises(UserError, match=r"answers otherwise than the run.*teabert doctor"):
        export(run.path, "onnx", out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("package", ["onnx", "onnxscript", "onnxruntime"])
def test_missing_package_names_its_install_command(tmp_path, monkeypatch, package):
    run = make_run(tmp_path / "run", {"mood": single("classes")})
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UserError, match=rf"needs {package}.*pip install 'teabert\[export\]'"):
        export(run.path, "onnx", out=tmp_path / "out")


@pytest.mark.parametrize(
    "tasks",
    [
        {"near": pair("score"), "mood": single("classes")},
        {"same": pair("binary", "mean", True, answer="difference")},
        {"same": pair("binary")},
    ],
    ids=lambda tasks: "-".join(tasks),
)
def test_readme_s_code_gives_the_run_s_own_outputs(tmp_path, capsys, tasks):
    run = make_run(tmp_path / "run", tasks)
    export(run.path, "onnx", out=tmp_path / "out")
    exec(exported.snippet(tmp_path / "out"), {})
    printed = [float(word) for word in capsys.readouterr().out.strip("[] \n").split()]
    name = "mood" if "mood" in tasks else next(iter(tasks))
    texts = "A text." if name == "mood" else ("The first text.", "The second.")
    assert np.allclose(printed, exported.own_outputs(opened(run), name, [texts])[0], atol=1e-4)


# eight bits


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    world = tiny.write_world(tmp_path_factory.mktemp("world"))
    return train(parse_recipe(tiny.recipe(world, epochs=1)), world / "run")


def test_int8_tells_what_it_costs_on_dev_rows_and_is_smaller(trained, tmp_path):
    made = export(trained.path, "onnx", out=tmp_path / "out", int8=True)
    full, small = tmp_path / "out" / "model.onnx", tmp_path / "out" / "model-int8.onnx"
    assert small.stat().st_size < full.stat().st_size
    assert [loss.task for loss in made.written.losses] == ["mood", "same", "near"]
    scores = opened(trained).evaluate().tasks
    for loss in made.written.losses:
        assert loss.rows == 24
        assert loss.full == pytest.approx(scores[loss.task][loss.metric], abs=1e-4)
        assert loss.points == pytest.approx(100 * (loss.full - loss.int8))
        assert 0 < loss.difference < 1


def test_int8_without_dev_rows_tells_the_largest_difference(tmp_path):
    run = make_run(tmp_path / "run", {"mood": single("classes"), "same": pair("binary", "mean", True, answer="difference")})
    made = export(run.path, "onnx", out=tmp_path / "out", int8=True)
    for loss in made.written.losses:
        assert (loss.metric, loss.points) == ("", None)
        assert loss.difference > 0
        assert loss.cells()[1:3] == ("64 random", "no dev rows")
