"""Tasks added to a trained model: small files, the old tasks as before to the bit, nothing taken that does not fit."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

import tiny
from injected import name_of
from teabert import load, parse_recipe, train
from teabert.adding import add_task, remove_task
from teabert.errors import UserError
from teabert.injections import INJECTIONS
from teabert.predictor import Request
from teabert.progress import Quiet
from teabert.taskfiles import KEY, TaskFile, attach, detach, files_of, foundation, probe
from teabert.training import Trainer

CHOICES = [
    *({"method": name} | ({"width": 12, "attention_heads": 3} if name == "pal" else {}) for name in INJECTIONS),
    ["input", {"method": "lora", "rank": 2}, {"method": "projected", "layers": 1}],
]
TEXTS = ["the film is good", "a dull book", "the hotel was not very great"]
PAIRS = [("how do i cook", "what is the best way to cook"), ("the dog runs", "the child sleeps")]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return tiny.write_world(tmp_path_factory.mktemp("world"))


def new_task(world, name="fresh", kind="mood", **changes):
    facts = tiny.recipe(world)["tasks"][kind]
    return {"tasks": {name: facts}, "train": {"epochs": 1, "lr": 1e-2}, "data": str(world / "data")} | changes


def make_run(world, out, injection="input", **changes):
    return train(parse_recipe(tiny.recipe(world, epochs=1) | {"injection": injection} | changes), out).path


@pytest.fixture(scope="module")
def trained(world, tmp_path_factory):
    return make_run(world, tmp_path_factory.mktemp("runs") / "run")


@pytest.fixture
def run(trained, tmp_path):
    return shutil.copytree(trained, tmp_path / "run")


def requests():
    mine = [Request("mood", text) for text in TEXTS]
    return [*mine, *(Request(task, pair) for task in ("same", "near") for pair in PAIRS)]


def logits(predictor, asked):
    """The very numbers, of one packed batch"""
    from teabert.batches import collate
    from teabert.requests import rows_of

    prepared = predictor.prepare_all(asked)
    tasks = dict.fromkeys(each.task for each in prepared)
    rows = {name: rows_of(predictor.tasks[name], [each for each in prepared if each.task == name]) for name in tasks}
    batch = collate([(mine, row) for mine in rows.values() for row in range(len(mine))], predictor.model.tasks)
    with torch.inference_mode():
        return predictor.model(batch)


@pytest.mark.parametrize("choice", CHOICES, ids=name_of)
def test_the_old_tasks_answer_as_before_to_the_bit_and_the_new_one_answers(world, tmp_path, choice):
    run = make_run(world, tmp_path / "run", choice)
    saved = load_file(run / "best" / "model.safetensors")
    before = logits(load(run), requests())
    path = add_task(run, new_task(world))
    predictor = load(run)
    after = logits(predictor, requests())
    assert all(torch.equal(after[name], wanted) for name, wanted in before.items())
    assert list(predictor.tasks) == ["mood", "same", "near", "fresh"]
    assert predictor.predict(TEXTS, "fresh")[0].label in map(str, range(5))
    assert all(torch.equal(tensor, saved[name]) for name, tensor in load_file(run / "best" / "model.safetensors").items())
    file = TaskFile.load(path)
    assert file.weights.keys() == predictor.model.owned("fresh").keys()
    assert not (run / "adding").exists()
    weights = {name: tensor.clone() for name, tensor in predictor.model.state_dict().items()}
    assert all(torch.equal(weights[name], tensor) for name, tensor in saved.items())


def test_the_new_task_learns_what_training_it_with_a_frozen_encoder_learns(world, run):
    add_task(run, new_task(world, train={"epochs": 2, "lr": 1e-2, "seed": 3}))
    recipe = new_task(
        world, train={"epochs": 2, "lr": 1e-2, "seed": 3, "mode": "frozen", "schedule": "linear", "warmup": 0.1}
    )
    recipe |= {"base": str(run), "injection": "input"}
    alone = load(train(parse_recipe(recipe), run / "alone").path)
    mine = load(run).model
    for name, tensor in alone.model.owned("fresh").items():
        assert torch.equal(tensor, mine.state_dict()[name]), name
    assert foundation(mine) == foundation(alone.model)


def test_added_tasks_mix_with_old_ones_and_with_each_other(world, run):
    add_task(run, new_task(world))
    add_task(run, new_task(world, "closer", "near"))
    predictor = load(run)
    asked = [*requests(), Request("closer", PAIRS[0]), Request("fresh", TEXTS[0])]
    mixed = predictor.answers(asked)
    alone = [predictor.answers([request])[0] for request in asked]
    for one, other in zip(mixed, alone, strict=True):
        assert one.label == other.label
        assert (one.score or 0) == pytest.approx(other.score or 0, abs=1e-5)


def test_a_task_can_be_removed_and_added_again_from_its_file(world, run, tmp_path):
    path = add_task(run, new_task(world))
    before = load(run).predict(TEXTS, "fresh")
    kept = shutil.copy(path, tmp_path / path.name)
    remove_task(run, "fresh")
    assert list(load(run).tasks) == ["mood", "same", "near"]
    assert not files_of(run)
    add_task(run, kept)
    assert load(run).predict(TEXTS, "fresh") == before


def test_a_model_in_use_takes_tasks_on_and_lets_them_go(world, run, tmp_path):
    path = shutil.copy(add_task(run, new_task(world)), tmp_path / "fresh.task.safetensors")
    wanted = load(run).predict(TEXTS, "fresh")
    remove_task(run, "fresh")
    predictor = load(run)
    before = logits(predictor, requests())
    attach(predictor, TaskFile.load(path), "here")
    assert predictor.predict(TEXTS, "fresh") == wanted
    assert all(torch.equal(found, before[name]) for name, found in logits(predictor, requests()).items())
    with pytest.raises(UserError, match="already has a task 'fresh'"):
        attach(predictor, TaskFile.load(path), "here")
    detach(predictor, "fresh")
    assert list(predictor.tasks) == ["mood", "same", "near"]
    with pytest.raises(UserError, match="trained on; only added tasks can be removed"):
        detach(predictor, "mood")
    with pytest.raises(UserError, match="Unknown task 'fresh'"):
        detach(predictor, "fresh")


def test_a_task_file_for_attention_on_bert_base_is_about_100_kb(tmp_path):
    """Counted on the meta device: 3 x 12 x 768 numbers and a head of five labels"""
    from teabert.config import load_recipe
    from teabert.encoder import Encoder, EncoderShape
    from teabert.model import assemble

    shape = EncoderShape("bert", 30522, 768, 12, 12, 3072, 512, 2, 1e-12)
    recipe = parse_recipe({"tasks": list(load_recipe("all-baseline").tasks), "injection": "attention"})
    with torch.device("meta"):
        owned = assemble(recipe, Encoder(shape)).owned("sst")
    tensors = {name: torch.zeros(tensor.shape) for name, tensor in owned.items()}
    file = TaskFile(recipe.tasks["sst"], "attention", "0" * 64, tensors, {"quora": torch.zeros(3, 1)}, {}, {})
    file.save(tmp_path / "sst.task.safetensors")
    assert 100_000 < (tmp_path / "sst.task.safetensors").stat().st_size < 135_000


def test_a_task_of_another_encoder_is_refused_by_its_checksum(world, run, tmp_path):
    other = make_run(world, tmp_path / "other", train={"epochs": 1, "seed": 5, "precision": "fp32"})
    path = add_task(other, new_task(world))
    with pytest.raises(UserError, match="trained on another encoder than this model's"):
        add_task(run, path)
    shutil.copytree(path.parent, run / "tasks")
    with pytest.raises(UserError, match="trained on another encoder"):
        load(run)


def test_a_probe_that_comes_out_otherwise_is_noticed_at_load(world, run):
    path = add_task(run, new_task(world))
    file = TaskFile.load(path)
    assert {name: found.shape[0] for name, found in file.probe.items()} == {"mood": 3, "same": 3, "near": 3}
    assert all(
        torch.equal(found, file.probe[name]) for name, found in probe(load(run).model, load(run).run.recipe.tasks).items()
    )
    file.probe["same"][0] += 1e-6  # far below what could be told by its answers
    file.save(path)
    with pytest.raises(UserError, match=r"With task 'fresh' added, 'same' no longer answers as it did before \(by up to"):
        load(run)
    elsewhere = TaskFile(**vars(file) | {"probed": file.probed | {"torch": "1.0"}})
    elsewhere.save(path)
    assert "fresh" in load(run).tasks, "on other hardware the last bits may differ"
    file.probe["same"][0] += 1
    TaskFile(**vars(elsewhere) | {"probe": file.probe}).save(path)
    with pytest.raises(UserError, match="no longer answers"):
        load(run)


def test_killed_and_begun_again_it_goes_on_to_the_same_file(world, run, tmp_path, monkeypatch):
    whole = shutil.copytree(run, tmp_path / "whole")
    task = new_task(world, train={"epochs": 3, "lr": 1e-2})
    wanted = TaskFile.load(add_task(whole, task)).weights
    finish = Trainer.finish_epoch

    def killed(trainer, number):
        finish(trainer, number)
        if number == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(Trainer, "finish_epoch", killed)
    with pytest.raises(KeyboardInterrupt):
        add_task(run, task)
    monkeypatch.undo()
    assert list(load(run).tasks) == ["mood", "same", "near"], "half trained is not there"
    found = TaskFile.load(add_task(run, task)).weights
    assert all(torch.equal(tensor, found[name]) for name, tensor in wanted.items())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"texts": "sentence"}, "must hold 'tasks:' with one task"),
        ({"encoder": "minilm"}, "encoder comes from the run"),
        ({"injection": "lora"}, "injection comes from the run"),
        ({"train": {"mode": "finetune"}}, "leave train.mode at frozen"),
        ({"train": {"epocs": 1}}, "Did you mean 'epochs'"),
    ],
)
def test_a_file_that_is_no_task_is_refused(world, run, given, message):
    facts = given if "texts" in given else new_task(world) | given
    with pytest.raises(UserError, match=message):
        add_task(run, facts)
    assert not (run / "adding").exists()


def test_names_that_are_taken_two_tasks_and_shared_heads_are_refused(world, run):
    task = new_task(world)["tasks"]["fresh"]
    for tasks, message in (
        ({"mood": task}, "already has a task 'mood'"),
        ({"a": task, "b": task}, "exactly one task"),
        ({"a": task | {"head": {"share": "mood"}}}, "'mood' is neither another task"),
    ):
        with pytest.raises(UserError, match=message):
            add_task(run, new_task(world) | {"tasks": tasks})


@pytest.mark.parametrize("damage", ["text", "cut", "no metadata", "metadata", "task", "shape", "newer"])
def test_a_damaged_task_file_is_refused_in_words(world, run, damage):
    path = add_task(run, new_task(world))
    tensors, content = load_file(path), json.loads(_metadata(path))
    if damage == "text":
        path.write_text("not a task")
    elif damage == "cut":
        path.write_bytes(path.read_bytes()[:-40])
    elif damage == "no metadata":
        save_file(tensors, path)
    elif damage == "metadata":
        save_file(tensors, path, {KEY: '{"task": 3}'})
    elif damage == "task":
        save_file(tensors, path, {KEY: json.dumps(content | {"task": content["task"] | {"kind": "songs"}})})
    elif damage == "newer":
        save_file(tensors, path, {KEY: json.dumps(content | {"format": 99})})
    else:
        tensors["weights/heads.fresh.answer.linear.bias"] = torch.zeros(7)
        save_file(tensors, path, {KEY: json.dumps(content)})
    with pytest.raises(UserError, match=r"damaged or no task file|is no task file|kind: 'songs'|do not fit|newer teabert"):
        load(run)


def _metadata(path):
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        return file.metadata()[KEY]


def test_a_base_lends_its_encoder_to_a_new_run(world, run):
    given = tiny.recipe(world, epochs=1) | {"injection": "input", "base": str(run)}
    del given["encoder"]
    built = Trainer.begin(parse_recipe(given), run / "next", Quiet())
    lent = load(run).model.encoder.state_dict()
    assert all(torch.equal(tensor, lent[name]) for name, tensor in built.model.encoder.state_dict().items())
    with pytest.raises(UserError, match="has injection 'input', the recipe has 'gate'"):
        train(parse_recipe(given | {"injection": "gate"}), run / "other")
    with pytest.raises(UserError, match="There is no run folder"):
        train(parse_recipe(given | {"base": "/nowhere"}), run / "other")
