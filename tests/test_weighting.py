"""How tasks are weighed against each other: fixed, learned, and their gradients kept from clashing."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import tiny
from teabert import parse_recipe
from teabert.errors import UserError
from teabert.losses import LOSSES
from teabert.progress import Quiet
from teabert.surgery import Surgery, projected
from teabert.tasks import make_task
from teabert.training import Trainer
from teabert.weighting import WEIGHTINGS, make_weighting

NEAR = {"texts": ["one", "two"], "kind": "score", "range": [0, 5], "files": "near-{split}.tsv", "weight": 2.0}
MOOD = {"texts": "sentence", "kind": "classes", "labels": [0, 1], "files": "mood-{split}.tsv"}
TASKS = {"mood": make_task("mood", MOOD, "mood"), "near": make_task("near", NEAR, "near")}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return tiny.write_world(tmp_path_factory.mktemp("world"))


def begin(world, out, injection="none", **train):
    return Trainer.begin(parse_recipe(tiny.recipe(world, **train) | {"injection": injection}), out, Quiet())


def quiet(trainer):
    """No dropout"""
    trainer.engine.set_modes = lambda: None
    trainer.model.eval()
    return trainer


# weights


def test_fixed_weights_are_the_recipes():
    weighting = make_weighting("fixed", TASKS)
    assert weighting("near", torch.tensor(3.0), 7).item() == 6.0
    assert not list(weighting.parameters())
    assert weighting.current() == {}


@given(st.floats(-2, 2), st.floats(0, 9), st.integers(1, 9))
def test_uncertainty_is_its_formula_half_of_the_first_term_for_scores(s, loss, count):
    weighting = make_weighting("uncertainty", TASKS).double()
    with torch.no_grad():
        for parameter in weighting.parameters():
            parameter.fill_(s)
    summed = torch.tensor(loss * count, dtype=torch.float64)
    sigma = math.exp(s / 2)
    assert weighting("mood", summed, count).item() == pytest.approx(count * (loss / sigma**2 + math.log(sigma)), abs=1e-6)
    expected = 2.0 * count * (loss / (2 * sigma**2) + math.log(sigma))  # the recipe's weight comes on top
    assert weighting("near", summed, count).item() == pytest.approx(expected, abs=1e-6)
    assert weighting.current() == pytest.approx({"mood": math.exp(-s), "near": math.exp(-s)})


def test_log_variances_settle_where_the_formula_has_its_least():
    weighting = make_weighting("uncertainty", TASKS)
    optimizer = torch.optim.Adam(weighting.parameters(), lr=0.05)
    for _ in range(600):
        optimizer.zero_grad()
        (weighting("mood", torch.tensor(8.0), 2) + weighting("near", torch.tensor(0.5), 5)).backward()
        optimizer.step()
    found = {name: s.item() for name, s in weighting.log_variances.items()}
    assert found == pytest.approx({"mood": math.log(2 * 4.0), "near": math.log(0.1)}, abs=1e-2)


@pytest.mark.parametrize("name", WEIGHTINGS)
def test_every_weighting_trains_logs_and_resumes_to_the_same_bits(world, tmp_path, name):
    whole = begin(world, tmp_path / "whole", weighting=name)
    run = whole.run_all()
    halves = begin(world, tmp_path / "halves", weighting=name)
    halves.epoch()
    resumed = Trainer.resume(tmp_path / "halves", Quiet())
    for ours, theirs in zip(resumed.engine.weighting.parameters(), halves.engine.weighting.parameters(), strict=True):
        assert torch.equal(ours, theirs)
        assert ours.item() != 0, "a learned weight did not move"
    resumed.epoch()
    states = [trainer.model.state_dict() for trainer in (whole, resumed)]
    assert all(torch.equal(value, states[1][key]) for key, value in states[0].items())
    lines = [line for line in run.log() if line["event"] == "loss"]
    assert all(set(line.get("weights", {})) == (set() if name == "fixed" else {"mood", "same", "near"}) for line in lines)
    assert not [key for key in run.load_best() if key.startswith("weighting")]


def test_the_learning_rate_of_learned_weights_is_their_own(world, tmp_path):
    weighting = {"method": "uncertainty", "lr": 0.5}
    trainer = begin(world, tmp_path / "run", weighting=weighting, schedule="linear", lr=1e-3, weight_decay=0.1)
    rates = [{}, {}]
    for number in range(2):
        trainer.step([trainer.sampler.epoch(0)[number]])
        for group in trainer.engine.optimizer.param_groups:
            rates[number][len(group["params"]) == 3] = (group["lr"], group["weight_decay"])
    assert rates[0] == {True: (0.5, 0.0), False: (1e-3, 0.1)}
    assert rates[1][True][0] == pytest.approx(500 * rates[1][False][0])


# surgery


def gradients(draw, tasks, size):
    return torch.from_numpy(draw.standard_normal((tasks, size)) + draw.standard_normal(size))


def by_the_book(rows, orders):
    """PCGrad as the paper writes it, on the gradients themselves"""
    total = torch.zeros_like(rows[0])
    for task, order in enumerate(orders):
        mine = rows[task].clone()
        for other in order:
            product = mine @ rows[other]
            if other != task and product < 0:
                mine -= product / rows[other].dot(rows[other]) * rows[other]
        total += mine
    return total


@settings(max_examples=60)
@given(st.integers(2, 5), st.integers(2, 30), st.integers(0, 10**6))
def test_weighted_rows_are_pcgrad_as_the_paper_writes_it(tasks, size, seed):
    draw = np.random.default_rng(seed)
    rows = gradients(draw, tasks, size)
    orders = [draw.permutation(tasks).tolist() for _ in range(tasks)]
    found = projected(rows @ rows.T, orders) @ rows
    assert torch.allclose(found, by_the_book(rows, orders), atol=1e-9)


@settings(max_examples=30)
@given(st.integers(2, 4), st.integers(0, 10**6))
def test_pcgrad_agrees_with_torchjd(tasks, seed):
    aggregation = pytest.importorskip("torchjd.aggregation")
    rows = gradients(np.random.default_rng(seed), tasks, 12)
    torch.manual_seed(seed)
    theirs = aggregation.PCGrad()(rows)
    torch.manual_seed(seed)  # the order in which it lets the tasks meet
    orders = [torch.randperm(tasks).tolist() for _ in range(tasks)]
    assert torch.allclose(projected(rows @ rows.T, orders) @ rows, theirs, atol=1e-9)


@pytest.mark.parametrize("project", [False, True])
def test_surgery_moves_gradients_to_one_buffer_and_back(project):
    shared = [nn.Parameter(torch.zeros(2, 2)), nn.Parameter(torch.zeros(3)), nn.Parameter(torch.zeros(1))]
    surgery = Surgery(shared, 3, seed=1, project=project)
    given_rows = [torch.tensor([1.0, 0, 0, 0, 0, 0, 0]), torch.tensor([-1.0, 1, 0, 0, 0, 2, 0])]
    for row, gradient in zip((0, 2), given_rows, strict=True):
        shared[0].grad, shared[1].grad = gradient[:4].view(2, 2).clone(), gradient[4:].clone()
        surgery.take(row)
        assert shared[0].grad is None
    cosines = surgery.settle([0, 2], 5)
    assert cosines[0, 1].item() == pytest.approx(-1 / 6**0.5)
    joint = torch.cat([shared[0].grad.flatten(), shared[1].grad])
    expected = by_the_book(torch.stack(given_rows), [[1, 0], [1, 0]]) if project else sum(given_rows)
    assert torch.allclose(joint, expected)
    assert shared[2].grad is None, "what no task moved stays unmoved"


@pytest.mark.parametrize("injection", ["none", "projected", ["input", "lora"]], ids=str)
def test_watched_gradients_are_those_of_the_ordinary_step(world, tmp_path, injection):
    plain = quiet(begin(world, tmp_path / "a", injection))
    watched = quiet(begin(world, tmp_path / "b", injection, surgery="watch"))
    for trainer in (plain, watched):
        trainer.step(trainer.sampler.epoch(0)[:2])
    for (name, one), (_, other) in zip(plain.model.named_parameters(), watched.model.named_parameters(), strict=True):
        assert (one.grad is None) == (other.grad is None), name
        assert one.grad is None or torch.allclose(one.grad, other.grad, atol=1e-6), name


def test_pcgrad_in_training_is_pcgrad_of_each_tasks_own_gradients(world, tmp_path):
    trainer = quiet(begin(world, tmp_path / "run", "attention", surgery="pcgrad"))
    pairs = trainer.sampler.epoch(0)[0]
    shared, alone = trainer.model.shared_parameters(), {}
    for task in sorted(set(pairs[:, 0].tolist())):
        trainer.model.zero_grad()
        trainer.engine.backward(pairs[pairs[:, 0] == task], len(pairs))
        alone[task] = torch.cat([torch.zeros_like(p).flatten() if p.grad is None else p.grad.flatten() for p in shared])
    rows = torch.stack(list(alone.values()))
    trainer.step([pairs])
    joint = torch.cat([torch.zeros_like(p).flatten() if p.grad is None else p.grad.flatten() for p in shared])
    from teabert.sampling import generator

    draw = generator(trainer.recipe.train.seed, "surgery", 0)
    assert torch.allclose(joint, by_the_book(rows, [draw.permutation(len(rows)).tolist() for _ in rows]), atol=1e-5)
    against = {
        names: rows[a] @ rows[b] < 0 for names, a, b in (("mood/same", 0, 1), ("mood/near", 0, 2), ("same/near", 1, 2))
    }
    assert trainer.place.met == dict.fromkeys(against, 1)
    assert trainer.place.clashed == {names: int(clash) for names, clash in against.items()}


def test_what_tasks_share_is_neither_their_vectors_nor_their_own_heads(world, tmp_path):
    model = begin(world, tmp_path / "run", ["projected", "lora"]).model
    shared = {id(parameter) for parameter in model.shared_parameters()}
    names = {name for name, parameter in model.named_parameters() if id(parameter) in shared}
    assert all(name.startswith(("encoder.", "injection.methods.projected.projections")) for name in names)
    assert {name for name, _ in model.named_parameters() if name.startswith("encoder.")} <= names


def test_a_run_with_surgery_resumes_to_the_same_bits_and_logs_the_rate_of_conflicts(world, tmp_path):
    facts = {"surgery": "pcgrad", "checkpoint_every": 4, "epochs": 1}
    whole = begin(world, tmp_path / "whole", "input", **facts)
    whole.run_all()
    half = begin(world, tmp_path / "half", "input", **facts)
    for pairs in half.sampler.epoch(0)[:4]:
        half.step([pairs])
    half.checkpoint()
    resumed = Trainer.resume(tmp_path / "half", Quiet())
    assert resumed.place.met == half.place.met != {}
    resumed.run_all()
    states = [trainer.model.state_dict() for trainer in (whole, resumed)]
    assert all(torch.equal(value, states[1][key]) for key, value in states[0].items())
    rates = [line["conflicts"] for line in whole.run.log() if line["event"] == "loss"]
    assert rates
    assert all(0 <= rate <= 1 for each in rates for rate in each.values())
    assert rates == [line["conflicts"] for line in resumed.run.log() if line["event"] == "loss"]


def test_surgery_with_nothing_to_share_says_so_and_trains(world, tmp_path):
    heard = []
    progress = Quiet()
    progress.note = heard.append
    trainer = Trainer.begin(
        parse_recipe(tiny.recipe(world, mode="frozen", surgery="pcgrad", epochs=1)), tmp_path / "run", progress
    )
    assert "train.surgery: pcgrad has nothing to do: the tasks learn nothing in common" in heard
    trainer.run_all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train": {"weighting": "uncertanty"}}, "Unknown weighting 'uncertanty'. Did you mean 'uncertainty'"),
        ({"train": {"weighting": {"method": "fixed", "lr": 1}}}, "unknown key 'lr'"),
        ({"train": {"surgery": "pcgrad"}, "tasks": ["sst"]}, "train.surgery: pcgrad compares .* 'sst' is the only one"),
        ({"train": {"surgery": "pc"}}, "'none', 'watch' or 'pcgrad'"),
        (
            {"train": {"weighting": "uncertainty"}, "tasks": {"sst": None, "sts": {"loss": "negative_pearson"}}},
            "uncertainty needs losses that never fall below zero, but tasks.sts.loss is negative_pearson",
        ),
    ],
)
def test_a_mistake_is_refused_by_its_key(change, message):
    with pytest.raises(UserError, match=message):
        parse_recipe({"tasks": ["sst", "sts"]} | change)


def test_only_one_loss_falls_below_zero():
    draw = torch.Generator().manual_seed(0)
    for name, loss in LOSSES.items():
        kind = loss.kinds[0]
        outputs = torch.randn(50, 1 if kind in ("binary", "score") else 3, generator=draw)
        labels = torch.randn(50, generator=draw) if kind == "score" else torch.randint(0, 2, (50,), generator=draw).float()
        if kind in ("soft", "multilabel"):
            labels = torch.rand(50, 3, generator=draw).softmax(-1)
        assert (loss.function(outputs, labels) < 0).any() == (name == "negative_pearson"), name
