import copy
import math

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.optim.lr_scheduler import LRScheduler

from teabert.errors import UserError
from teabert.optim import CourseAdamW, OptimSettings, Schedule, build_optimizer, lr_factor
from teabert.settings import parse

numbers = st.floats(-3, 3, width=32)


def reference(start, gradients, *, lr, weight_decay, betas, eps):
    """The course's update for one number, as the seed study writes it; a step without gradient changes nothing."""
    p, m, v, t = start, 0.0, 0.0, 0
    beta1, beta2 = betas
    for gradient in gradients:
        if gradient is None:
            continue
        t += 1
        m = beta1 * m + (1 - beta1) * gradient
        v = beta2 * v + (1 - beta2) * gradient**2
        p -= lr * math.sqrt(1 - beta2**t) / (1 - beta1**t) * m / (math.sqrt(v) + eps)
        p -= lr * weight_decay * p
    return p


def parameters(values, dtype=torch.float64):
    return [(f"p{index}", nn.Parameter(torch.tensor([value], dtype=dtype))) for index, value in enumerate(values)]


def take_steps(optimizer, named, gradients_by_step):
    for gradients in gradients_by_step:
        for (_, parameter), gradient in zip(named, gradients, strict=True):
            parameter.grad = None if gradient is None else torch.full_like(parameter, gradient)
        optimizer.step()


def test_the_course_golden_is_reached():
    rng = np.random.default_rng(0)
    torch.manual_seed(0)
    model = nn.Linear(3, 2, bias=False)
    chosen = OptimSettings(optimizer="course", weight_decay=1e-4)
    optimizer = build_optimizer(model.named_parameters(), chosen, lr=1e-3)
    for _ in range(1000):
        optimizer.zero_grad()
        x = torch.tensor(rng.uniform(size=3), dtype=torch.float32)
        ((torch.stack([x[0] + x[1], -x[2]]) - model(x)) ** 2).sum().backward()
        optimizer.step()
    expected = torch.tensor([[0.55482787, 0.86665666, 0.07291982], [-0.44724506, -0.2951228, -0.2717272]])
    torch.testing.assert_close(model.weight.detach(), expected, atol=1e-6, rtol=1e-4)


@settings(deadline=None, max_examples=60)
@given(
    starts=st.lists(numbers, min_size=3, max_size=3),
    steps=st.lists(st.tuples(*[st.none() | numbers] * 3), min_size=1, max_size=12),
    lr=st.floats(1e-5, 0.1),
    weight_decay=st.sampled_from([0.0, 0.01, 0.5]),
    eps=st.sampled_from([1e-8, 1e-6, 1e-2]),
)
def test_course_update_equals_its_formula_even_when_gradients_are_missing(starts, steps, lr, weight_decay, eps):
    chosen = OptimSettings(optimizer="course", weight_decay=weight_decay, eps=eps)
    named = parameters(starts)
    take_steps(build_optimizer(named, chosen, lr), named, steps)
    for (_, parameter), start, gradients in zip(named, starts, zip(*steps, strict=True), strict=True):
        expected = reference(start, gradients, lr=lr, weight_decay=weight_decay, betas=chosen.betas, eps=eps)
        assert parameter.item() == pytest.approx(expected, rel=1e-9, abs=1e-11)


def random_gradients(steps, count, missing, seed=0):
    rng = np.random.default_rng(seed)
    return [[None if rng.random() < missing else rng.normal() for _ in range(count)] for _ in range(steps)]


def test_course_update_equals_torch_without_decay_and_with_tiny_eps():
    ours, theirs = parameters([1.0, -2.0, 0.5]), parameters([1.0, -2.0, 0.5])
    steps = random_gradients(200, 3, missing=0)
    take_steps(build_optimizer(ours, OptimSettings(optimizer="course", eps=1e-12), 1e-2), ours, steps)
    take_steps(torch.optim.AdamW([p for _, p in theirs], 1e-2, eps=1e-12, weight_decay=0), theirs, steps)
    for (_, our), (_, their) in zip(ours, theirs, strict=True):
        torch.testing.assert_close(our, their, atol=1e-6, rtol=0)


@pytest.mark.parametrize("name", ["adamw", "course"])
def test_a_decay_of_a_thousandth_at_bert_s_learning_rate_changes_no_bit(name):
    ends = {}
    for decay in (0.0, 1e-3, 1e-2):
        torch.manual_seed(0)
        named = [("weight", nn.Parameter(torch.randn(400, 100) * 10 ** torch.linspace(-4, 2, 100)))]
        made = build_optimizer(named, OptimSettings(optimizer=name, weight_decay=decay), 1e-5)
        for _ in range(60):
            named[0][1].grad = torch.randn(400, 100)
            made.step()
        ends[decay] = named[0][1].detach()
    assert torch.equal(ends[0.0], ends[1e-3])
    assert not torch.equal(ends[0.0], ends[1e-2])


def test_eps_is_not_corrected_in_the_course_update():
    """With an eps that matters the two updates differ, so the tests above tell them apart."""
    moved = {}
    for name in ("adamw", "course"):
        named = parameters([1.0])
        take_steps(build_optimizer(named, OptimSettings(optimizer=name, eps=0.1), 0.1), named, [[1.0]])
        moved[name] = 1 - named[0][1].item()
    assert moved["adamw"] == pytest.approx(0.1 / 1.1)
    assert moved["course"] == pytest.approx(0.1 * math.sqrt(0.001) / (math.sqrt(0.001) + 0.1))


@pytest.mark.parametrize("name", ["adamw", "course"])
@pytest.mark.parametrize("stop", [1, 7, 29])
def test_resuming_equals_never_stopping(name, stop):
    steps = random_gradients(30, 4, missing=0.4)
    chosen = OptimSettings(optimizer=name, weight_decay=0.01)
    whole, cut = parameters([1.0, 2.0, -1.0, 0.1], torch.float32), parameters([1.0, 2.0, -1.0, 0.1], torch.float32)
    take_steps(build_optimizer(whole, chosen, 1e-2), whole, steps)
    first = build_optimizer(cut, chosen, 1e-2)
    take_steps(first, cut, steps[:stop])
    second = build_optimizer(cut, chosen, 1e-2)
    take_steps(second, cut, [[None] * 4])
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    take_steps(second, cut, steps[stop:])
    assert [p.item() for _, p in cut] == [p.item() for _, p in whole]


def test_loading_an_earlier_state_sets_the_step_counts_back():
    named = parameters([1.0])
    optimizer = build_optimizer(named, OptimSettings(optimizer="course"), 1e-2)
    take_steps(optimizer, named, [[1.0]])
    saved, value = copy.deepcopy(optimizer.state_dict()), named[0][1].item()
    take_steps(optimizer, named, [[2.0], [3.0]])
    once = named[0][1].item()
    optimizer.load_state_dict(saved)
    named[0][1].data.fill_(value)
    take_steps(optimizer, named, [[2.0], [3.0]])
    assert named[0][1].item() == once
    assert set(optimizer.state_dict()["state"][0]) == {"step", "exp_avg", "exp_avg_sq"}  # tensors only, as torch's


def test_a_closure_is_called_once_with_gradients_on():
    named = parameters([1.0])
    optimizer, calls = build_optimizer(named, OptimSettings(optimizer="course"), 1e-2), []

    def closure():
        loss = (named[0][1] ** 2).sum()
        loss.backward()
        calls.append(loss.item())
        return loss

    assert optimizer.step(closure).item() == 1.0
    assert calls == [1.0]
    assert named[0][1].item() < 1


@pytest.mark.parametrize("name", ["adamw", "course"])
@pytest.mark.parametrize(("decay", "shrunk"), [("all", {"weight", "bias"}), ("weights", {"weight"})])
def test_decay_shrinks_what_it_should(name, decay, shrunk):
    model = nn.Linear(2, 2)
    nn.init.ones_(model.weight)
    nn.init.ones_(model.bias)
    chosen = OptimSettings(optimizer=name, weight_decay=0.5, decay=decay)
    optimizer = build_optimizer(model.named_parameters(), chosen, lr=0.1)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    for part, parameter in model.named_parameters():
        torch.testing.assert_close(parameter, torch.full_like(parameter, 0.95 if part in shrunk else 1.0))


def test_frozen_parameters_are_left_out_and_names_kept():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[0].requires_grad_(False)
    optimizer = build_optimizer(model.named_parameters(), OptimSettings(), lr=1e-3)
    assert [group["param_names"] for group in optimizer.param_groups] == [["1.weight", "1.bias"]]
    assert optimizer.param_groups[0]["fused"]
    model.requires_grad_(False)
    with pytest.raises(UserError, match="nothing to train"):
        build_optimizer(model.named_parameters(), OptimSettings(), lr=1e-3)


def test_decay_that_would_wipe_out_the_parameters_is_refused():
    with pytest.raises(UserError, match=r"weight_decay 10\.0 at lr 0\.1 would wipe out"):
        build_optimizer(parameters([1.0]), OptimSettings(weight_decay=10), lr=0.1)


def test_optimisers_fall_back_where_no_fused_kernel_exists():
    named = [("weight", nn.Parameter(torch.ones(2, device="meta")))]
    assert not build_optimizer(named, OptimSettings(), lr=1e-3).param_groups[0]["fused"]


def test_the_unfused_course_update_equals_the_fused():
    values = [1.0, -2.0, 0.5]
    fused, plain = parameters(values), parameters(values)
    steps = random_gradients(20, 3, missing=0.3)
    for named, kernel in ((fused, True), (plain, False)):
        take_steps(CourseAdamW(named, lr=1e-2, eps=1e-3, weight_decay=0.1, fused=kernel), named, steps)
    for (_, one), (_, other) in zip(fused, plain, strict=True):
        torch.testing.assert_close(one, other, atol=1e-12, rtol=1e-12)


def published(schedule, rise, total) -> LRScheduler:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    match schedule:
        case "constant":
            return transformers.get_constant_schedule_with_warmup(optimizer, rise)
        case "linear":
            return transformers.get_linear_schedule_with_warmup(optimizer, rise, total)
        case "cosine":
            return transformers.get_cosine_schedule_with_warmup(optimizer, rise, total)


@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine"])
@pytest.mark.parametrize(("warmup", "rise"), [(0, 0), (0.1, 4), (7, 7), (0.999, 40), (40, 40), (60, 60)])
def test_schedules_equal_those_of_transformers(schedule, warmup, rise):
    factor = published(schedule, rise, 40).lr_lambdas[0]
    steps = range(41 if rise < 40 else 40)  # what follows the last step is only defined where warm-up ended before
    found = [lr_factor(step, 40, schedule, warmup) for step in steps]
    assert found == pytest.approx([factor(step) for step in steps], abs=1e-12)


@pytest.mark.parametrize(
    ("model", "given", "message"),
    [
        (Schedule, {"warmup": 2.5}, "neither a fraction below 1 nor a whole number"),
        (Schedule, {"warmup": -1}, "warmup: -1 does not fit"),
        (OptimSettings, {"betas": [0.9, 1.0]}, "below 1"),
        (OptimSettings, {"lr": 0}, "lr: 0 does not fit"),
        (OptimSettings, {"weight_deacy": 0}, "Did you mean 'weight_decay'"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(model, given, message):
    with pytest.raises(UserError, match=message):
        parse(model, given, "exp.yaml")
