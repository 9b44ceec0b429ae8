"""Heads that several tasks share: TEA-BERT's task-sharable heads, one dropout and one linear layer for Quora and STS."""

import pytest
import torch

import tiny
from conftest import tiny_shape
from teabert.config import load_recipe, parse_recipe
from teabert.encoder import Encoder
from teabert.errors import UserError
from teabert.model import Model, assemble
from teabert.predictor import load
from teabert.training import train

PAIRS = {"answer": "concatenated", "share": "pairs"}


def recipe(same=None, near=None, **facts):
    tasks = {
        "quora": {"pair": "apart", "head": PAIRS if same is None else same},
        "sts": {"pair": "apart", "head": PAIRS | {"stretch": "raw"} if near is None else near},
    }
    return parse_recipe({"tasks": tasks} | facts)


def model_of(given) -> Model:
    torch.manual_seed(0)
    return assemble(given, Encoder(tiny_shape())).eval()


def test_two_tasks_have_one_dropout_and_one_linear_layer_of_twice_the_width():
    model = model_of(recipe())
    assert {name: tuple(p.shape) for name, p in model.heads.named_parameters()} == {
        "pairs.answer.linear.weight": (1, 64),
        "pairs.answer.linear.bias": (1,),
    }
    assert model.head("quora") is model.head("sts")
    assert model.tasks == ("quora", "sts")


@pytest.mark.parametrize(("stretch", "scale"), [("raw", lambda x: 5 * x), ("sigmoid", lambda x: 5 * torch.sigmoid(x))])
def test_sts_is_five_times_the_logit_that_quora_reads(stretch, scale):
    model = model_of(recipe(near=PAIRS | {"stretch": stretch}))
    logit = torch.linspace(-2, 2, 7)[:, None]
    assert torch.equal(model.finish("quora", logit), logit)
    assert torch.equal(model.finish("sts", logit), scale(logit))


def test_a_task_may_use_the_head_of_another_by_its_name():
    model = model_of(recipe(same={"answer": "difference", "share": "sts"}, near={"answer": "difference"}))
    assert list(model.heads) == ["sts"]
    assert model.head("quora") is model.head("sts")


def test_the_recipe_that_comes_with_teabert_is_the_papers():
    model = model_of(load_recipe("all-sharable"))
    assert {name: sum(p.numel() for p in head.parameters()) for name, head in model.heads.items()} == {
        "sst": 5 * 32 + 5,
        "pairs": 64 + 1,
    }
    assert model.uses["sts"].stretch == "raw"


@pytest.mark.parametrize(
    ("same", "near", "message"),
    [
        (PAIRS, {"answer": "difference", "share": "pairs"}, "tasks.quora.head.share: 'quora' and 'sts' are too unlike"),
        (PAIRS, {"answer": "difference", "share": "pairs"}, "head.answer: concatenated and difference"),
        (PAIRS, PAIRS | {"dropout": 0.5}, "head.dropout: 0.1 and 0.5"),
        (PAIRS, PAIRS | {"read": "first_token"}, "head.read: "),
        (PAIRS, {"answer": "concatenated", "share": "pears"}, "share: 'pairs' is neither another task nor a name that"),
        (PAIRS, {"answer": "concatenated"}, "Name one of sts, or give the same name to both"),
        ({"answer": "concatenated", "share": "st"}, {"answer": "concatenated"}, "'st' is neither another task"),
    ],
)
def test_unlike_tasks_are_refused_in_words_that_name_the_key(same, near, message):
    with pytest.raises(UserError) as error:
        recipe(same=same, near=near)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ("sst", "quora", "outputs: 5 and 1"),
        ("sst", "more-sick-entailment", "outputs: 5 and 3"),
        ("quora", "sst", "outputs: 1 and 5"),
    ],
)
def test_tasks_with_other_outputs_are_refused(first, second, message):
    with pytest.raises(UserError, match=f"tasks.{first}.head.share.*{message}"):
        parse_recipe({"tasks": {first: {"head": {"share": "one"}}, second: {"head": {"share": "one"}}}})


def test_a_default_that_is_written_out_makes_no_head_unlike():
    given = recipe(same={"answer": "dot", "share": "x"}, near={"answer": {"method": "dot", "width": 768}, "share": "x"})
    assert list(model_of(given).heads) == ["x"]
    with pytest.raises(UserError, match=r"head.answer: .*'width': 768.* and .*'width': 9"):
        recipe(same={"answer": "dot", "share": "x"}, near={"answer": {"method": "dot", "width": 9}, "share": "x"})


def test_a_lone_task_shares_with_nobody():
    with pytest.raises(UserError, match=r"tasks.sst.head.share: 'x' .* 'sst' is the only task: leave it out"):
        parse_recipe({"tasks": {"sst": {"head": {"share": "x"}}}})


def test_tasks_with_other_labels_are_refused_although_they_are_as_many():
    mine = {"texts": "t", "kind": "classes", "files": "{split}.csv", "head": {"share": "one"}}
    given = {"a": mine | {"labels": ["x", "y", "z"]}, "b": mine | {"labels": ["x", "y", "w"]}}
    with pytest.raises(UserError, match=r"labels: .*'z'.*'w'"):
        parse_recipe({"tasks": given})
    given["b"]["labels"] = given["a"]["labels"]
    assert parse_recipe({"tasks": given}).tasks["b"].head_name == "one"


def test_a_run_with_a_shared_head_trains_and_its_saved_model_answers(tmp_path):
    world = tiny.write_world(tmp_path)
    given = tiny.recipe(world, epochs=1)
    for name, stretch in (("same", None), ("near", "sigmoid")):
        given["tasks"][name] |= {"pair": "apart", "head": {"answer": "difference", "share": "pairs", "stretch": stretch}}
    run = train(parse_recipe(given), tmp_path / "run")
    predictor = load(run.path)
    assert sorted(predictor.model.heads) == ["mood", "pairs"]
    [score] = predictor.predict([("the film is good", "the film is fine")], task="near")
    assert 0 <= score.score <= 5
    [same] = predictor.predict([("the film is good", "the film is fine")], task="same")
    assert same.label in ("0", "1")
