import math

import numpy as np
import pytest
import scipy.special
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from teabert.losses import LOSSES, label_weights, make_loss, negative_pearson
from teabert.tasks.kinds import KINDS, sigmoid, softmax

NUMBERS = st.floats(-15, 15).map(lambda value: round(value, 3))


def logits(outputs):
    return st.integers(1, 12).flatmap(lambda n: arrays(np.float64, (n, outputs), elements=NUMBERS))


def loss(name, outputs, labels):
    """In float64, one number per example"""
    found = LOSSES[name].function(torch.tensor(outputs), torch.tensor(labels, dtype=torch.float32).double())
    assert found.shape == (len(outputs),)
    return found.numpy()


@given(st.integers(2, 6).flatmap(logits), st.randoms(use_true_random=False))
def test_cross_entropy_equals_its_formula(outputs, random):
    labels = [random.randrange(outputs.shape[1]) for _ in outputs]
    right = softmax(outputs)[np.arange(len(outputs)), labels]
    assert loss("cross_entropy", outputs, labels) == pytest.approx(-np.log(right), rel=1e-9, abs=1e-12)


@given(st.integers(2, 6).flatmap(logits), st.randoms(use_true_random=False))
def test_cross_entropy_twice_takes_the_softmax_of_the_softmax(outputs, random):
    labels = [random.randrange(outputs.shape[1]) for _ in outputs]
    right = softmax(softmax(outputs))[np.arange(len(outputs)), labels]
    found = loss("cross_entropy_twice", outputs, labels)
    assert found == pytest.approx(-np.log(right), rel=1e-9)
    count = outputs.shape[1]
    floor = np.log(np.exp(1) + count - 1) - 1  # even a certain and right answer costs this much
    assert (found >= floor - 1e-12).all()


@given(st.integers(1, 5).flatmap(logits), st.randoms(use_true_random=False))
def test_binary_cross_entropy_equals_its_formula_averaged_over_labels(outputs, random):
    labels = np.array([[float(random.random() < 0.5) for _ in row] for row in outputs])
    p = sigmoid(outputs)
    expected = -(labels * np.log(p) + (1 - labels) * np.log1p(-p)).mean(axis=1)
    given = labels[:, 0] if outputs.shape[1] == 1 else labels
    assert loss("binary_cross_entropy", outputs, given) == pytest.approx(expected, rel=1e-6, abs=1e-9)


@given(logits(1))
def test_squared_error_equals_its_formula(outputs):
    labels = np.linspace(0, 5, len(outputs)).astype(np.float32)
    assert loss("squared_error", outputs, labels) == pytest.approx((outputs[:, 0] - labels) ** 2, rel=1e-9, abs=1e-12)


def test_squared_error_does_not_broadcast_over_the_batch():
    found = loss("squared_error", np.array([[1.0], [2.0], [4.0]]), [1.0, 2.0, 3.0])
    assert found.tolist() == [0, 0, 1]


scores = st.integers(2, 12).flatmap(
    lambda n: st.tuples(*[arrays(np.float64, n, elements=st.floats(-5, 5).map(lambda value: round(value, 2)))] * 2)
)


def by_corrcoef(outputs, labels):
    return -torch.corrcoef(torch.stack([outputs[:, 0], labels]))[0, 1]


@given(scores.filter(lambda pair: np.ptp(pair[0]) > 0.1 and np.ptp(pair[1]) > 0.1))
def test_negative_pearson_and_its_gradient_equal_those_of_corrcoef(pair):
    labels = torch.tensor(pair[1])
    results = []
    for function in (lambda x, y: negative_pearson(x, y).mean(), by_corrcoef):
        outputs = torch.tensor(pair[0][:, None], requires_grad=True)
        value = function(outputs, labels)
        value.backward()
        results.append((value.item(), outputs.grad))
    assert results[0][0] == pytest.approx(results[1][0], abs=1e-9)
    assert (results[0][1] - results[1][1]).abs().max() <= 1e-9


@given(scores)
def test_negative_pearson_is_the_same_for_each_example(pair):
    found = loss("negative_pearson", pair[0][:, None], pair[1])
    assert np.ptp(found) == 0
    assert -1 - 1e-6 <= found[0] <= 1 + 1e-6


@pytest.mark.parametrize("outputs", [[2.0], [2.0, 2.0, 2.0], [0.0, 0.0]])
def test_negative_pearson_of_constant_predictions_is_zero_with_a_finite_gradient(outputs):
    x = torch.tensor(outputs)[:, None].requires_grad_()
    found = negative_pearson(x, torch.arange(len(outputs)).float())
    assert found.tolist() == [0.0] * len(outputs)
    found.mean().backward()
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("outputs", [[2.0], [1.0, 2.0, 3.0]])
def test_negative_pearson_without_two_different_labels_teaches_nothing(outputs):
    x = torch.tensor(outputs)[:, None].requires_grad_()
    found = negative_pearson(x, torch.full((len(outputs),), 3.0))
    assert found.tolist() == [0.0] * len(outputs)
    found.mean().backward()
    assert not x.grad.any()


def test_without_weights_every_example_counts_one():
    assert label_weights(torch.tensor([0.0, 3.0]), None).tolist() == [1, 1]
    assert label_weights(torch.zeros(3, 2), None).tolist() == [1, 1, 1]


@given(st.lists(st.integers(0, 3), min_size=1), st.lists(st.floats(0.125, 9, width=32), min_size=4, max_size=4))
def test_an_example_weighs_what_its_class_weighs(labels, weights):
    found = label_weights(torch.tensor(labels, dtype=torch.float32), torch.tensor(weights))
    assert found.tolist() == [weights[label] for label in labels]


@given(arrays(np.float32, st.tuples(st.integers(1, 6), st.just(3)), elements=st.sampled_from([0.0, 1.0])))
def test_several_labels_weigh_their_mean_where_absent_ones_count_one(labels):
    weights = np.array([0.5, 2.0, 8.0])
    expected = np.where(labels == 1, weights, 1).mean(axis=1)
    assert label_weights(torch.tensor(labels), torch.tensor(weights)).numpy() == pytest.approx(expected)


def test_every_kind_has_a_usual_loss_that_fits_it():
    assert {name for name, kind in KINDS.items() if name in LOSSES[kind.loss].kinds} == set(KINDS)


@given(st.integers(2, 5).flatmap(logits))
def test_what_a_kind_makes_of_outputs_fits_its_loss(outputs):
    assert KINDS["classes"].probabilities(outputs).sum(1) == pytest.approx(np.ones(len(outputs)))
    assert (KINDS["classes"].decide(outputs) == outputs.argmax(1)).all()
    likely = KINDS["multilabel"].probabilities(outputs)
    assert ((likely > 0.5) == (KINDS["multilabel"].decide(outputs) == 1)).all()
    assert (KINDS["binary"].decide(outputs[:, :1]) == (outputs[:, 0] > 0)).all()
    assert (KINDS["score"].decide(outputs[:, :1]) == outputs[:, 0]).all()


@settings(max_examples=50)
@given(st.integers(2, 6), st.integers(0, 10_000))
def test_squared_earth_mover_is_the_squared_distance_of_scipy_s_cumulative_sums(labels, seed):
    draw = torch.Generator().manual_seed(seed)
    outputs = torch.randn(4, labels, generator=draw, dtype=torch.float64)
    wanted = torch.randint(0, labels, (4,), generator=draw)
    found = LOSSES["squared_earth_mover"].function(outputs, wanted.double())
    for row, label, loss in zip(scipy.special.softmax(outputs.numpy(), -1), wanted.tolist(), found.tolist(), strict=True):
        reached = [sum(row[: level + 1]) - (1.0 if level >= label else 0.0) for level in range(labels)]
        assert loss == pytest.approx(sum(gap**2 for gap in reached))


def test_cumulative_is_one_yes_or_no_question_for_each_threshold():
    outputs = torch.tensor([[2.0, -1.0, 0.5]], dtype=torch.float64)
    chances = scipy.special.expit(outputs.numpy()[0])
    for label in range(4):
        answers = [chance if label > place else 1 - chance for place, chance in enumerate(chances)]
        found = LOSSES["cumulative"].function(outputs, torch.tensor([float(label)]))
        assert found.item() == pytest.approx(-sum(math.log(answer) for answer in answers))


def test_smoothed_cross_entropy_equals_scipy_s_relative_entropy_to_the_smoothed_label():
    outputs = torch.tensor([[2.0, -1.0, 0.5], [0.0, 0.3, -2.0]], dtype=torch.float64)
    found = make_loss({"method": "cross_entropy", "smooth": 0.3})(outputs, torch.tensor([0.0, 2.0]))
    for row, label, loss in zip(outputs.numpy(), (0, 2), found.tolist(), strict=True):
        wanted = np.full(3, 0.1) + 0.7 * np.eye(3)[label]
        expected = scipy.special.rel_entr(wanted, scipy.special.softmax(row)).sum() + scipy.special.entr(wanted).sum()
        assert loss == pytest.approx(expected)


@settings(max_examples=50)
@given(st.integers(2, 6).flatmap(logits), st.floats(0.1, 5), st.randoms(use_true_random=False))
def test_near_cross_entropy_lets_a_label_stand_for_its_neighbours(outputs, sharpness, random):
    labels = [random.randrange(outputs.shape[1]) for _ in outputs]
    found = make_loss({"method": "near_cross_entropy", "sharpness": sharpness})(torch.tensor(outputs), torch.tensor(labels))
    for row, label, loss in zip(outputs, labels, found.tolist(), strict=True):
        wanted = scipy.special.softmax([-sharpness * (level - label) ** 2 for level in range(len(row))])
        assert loss == pytest.approx(-(wanted * scipy.special.log_softmax(row)).sum(), rel=1e-6, abs=1e-9)


def test_the_help_on_sharpness_says_what_neighbours_get():
    one, three = (np.exp(-sharpness) for sharpness in (1, 3))
    assert (round(one, 2), round(three, 2)) == (0.37, 0.05)


@given(st.integers(2, 6).flatmap(logits), st.integers(0, 10**6))
def test_soft_cross_entropy_and_earth_mover_take_how_likely_each_label_is(outputs, seed):
    wanted = np.random.default_rng(seed).dirichlet(np.ones(outputs.shape[1]), len(outputs))
    found = make_loss("soft_cross_entropy")(torch.tensor(outputs), torch.tensor(wanted))
    assert found.numpy() == pytest.approx(-(wanted * scipy.special.log_softmax(outputs, -1)).sum(1), rel=1e-6, abs=1e-9)
    moved = make_loss("squared_earth_mover")(torch.tensor(outputs), torch.tensor(wanted))
    gaps = np.cumsum(scipy.special.softmax(outputs, -1) - wanted, axis=1)
    assert moved.numpy() == pytest.approx((gaps**2).sum(1), rel=1e-6, abs=1e-9)


def test_soft_labels_weigh_their_classes_as_likely_as_they_are():
    likely = torch.tensor([[0.5, 0.5, 0.0], [0.1, 0.2, 0.7]])
    found = label_weights(likely, torch.tensor([2.0, 4.0, 10.0]), soft=True)
    assert found.tolist() == pytest.approx([3.0, 8.0])
