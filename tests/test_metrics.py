import json
import math
import subprocess
import sys
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats
from sklearn import metrics as sk

from teabert.errors import UserError
from teabert.metrics import AGGREGATES, METRICS, aggregate, is_constant

classes = st.integers(1, 60).flatmap(lambda n: st.tuples(*[arrays(np.int64, n, elements=st.integers(0, 5))] * 2))
several = st.tuples(st.integers(1, 30), st.integers(1, 6)).flatmap(
    lambda shape: st.tuples(*[arrays(np.int64, shape, elements=st.integers(0, 1))] * 2)
)
coarse = st.integers(-20, 20).map(lambda tenths: tenths / 10)  # many ties
fine = st.floats(-1e6, 1e6, allow_subnormal=False).map(lambda value: round(value, 4))
scores = st.integers(2, 40).flatmap(
    lambda n: st.tuples(*[st.one_of(*(arrays(np.float64, n, elements=each) for each in (coarse, fine)))] * 2)
)


@given(classes)
def test_class_metrics_equal_scikit_learn(pair):
    predictions, labels = pair
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn warns of a single class
        expected = {
            "accuracy": sk.accuracy_score(labels, predictions),
            "macro_f1": sk.f1_score(labels, predictions, average="macro", zero_division=0),
            "micro_f1": sk.f1_score(labels, predictions, average="micro", zero_division=0),
            "matthews": sk.matthews_corrcoef(labels, predictions),
        }
    assert {name: METRICS[name](predictions, labels) for name in expected} == pytest.approx(expected, abs=1e-12)


@given(several)
def test_several_labels_a_row_equal_scikit_learn(pair):
    predictions, labels = pair
    f1 = {
        f"{average}_f1": sk.f1_score(
            labels, predictions, average=average if labels.shape[1] > 1 else "binary", zero_division=0
        )
        for average in ("micro", "macro")
    }
    expected = {"accuracy": (predictions == labels).all(axis=1).mean(), **f1}
    assert {name: METRICS[name](predictions, labels) for name in expected} == pytest.approx(expected, abs=1e-12)


@given(scores)
def test_correlations_equal_scipy(pair):
    predictions, labels = pair
    if (predictions == predictions[0]).all() or (labels == labels[0]).all():
        assert METRICS["pearson"](predictions, labels) == METRICS["spearman"](predictions, labels) == 0.0
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scipy warns of nearly constant input
        expected = [stats.pearsonr(predictions, labels)[0], stats.spearmanr(predictions, labels)[0]]
    found = [METRICS[name](predictions, labels) for name in ("pearson", "spearman")]
    assert found == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize("name", METRICS)
def test_no_rows_give_nan_and_perfect_rows_give_one(name):
    assert math.isnan(METRICS[name]([], []))
    assert METRICS[name]([0, 1, 1, 0], [0, 1, 1, 0]) == pytest.approx(1.0)


@pytest.mark.parametrize("name", [name for name, metric in METRICS.items() if metric.correlation])
def test_a_correlation_with_a_constant_is_zero_and_with_the_opposite_minus_one(name):
    for constant in (0, 1, 1e300):
        assert METRICS[name]([constant] * 3, [0, 1, 1]) == METRICS[name]([0, 1, 1], [constant] * 3) == 0.0
    assert METRICS[name]([0, 1, 1, 0], [1, 0, 0, 1]) == pytest.approx(-1.0)


@pytest.mark.parametrize("scale", [1e-200, 1e-30, 1e150])
def test_pearson_survives_extreme_scales(scale):
    predictions, labels = np.array([1.0, 2.0, 4.0, 3.0]), np.array([1.0, 2.0, 3.0, 4.0])
    expected = stats.pearsonr(predictions, labels)[0]
    assert METRICS["pearson"](predictions * scale, labels) == pytest.approx(expected)


@pytest.mark.parametrize("name", ["pearson", "spearman"])
def test_a_prediction_that_is_no_number_makes_the_correlation_none(name):
    assert math.isnan(METRICS[name]([0.0, math.nan, 1.0], [0.0, 1.0, 2.0]))


def test_shapes_that_differ_are_an_error():
    with pytest.raises(AssertionError, match="differ in shape"):
        METRICS["accuracy"]([[0], [1]], [0, 1])


def test_overall_scores_equal_the_papers():
    """TEA-BERT's best row on the leaderboard, on its own scale and on the other paper's (seed study 3.5)."""
    leaderboard = {"sst": ("accuracy", 0.486), "para": ("accuracy", 0.705), "sts": ("pearson", 0.623)}
    assert aggregate(leaderboard, "mean") == pytest.approx((0.486 + 0.705 + 0.623) / 3)
    assert aggregate(leaderboard, "course") == pytest.approx((0.486 + 0.705 + 0.8115) / 3)
    assert round(aggregate(leaderboard, "course"), 4) == 0.6675


def test_only_correlations_differ_between_the_overall_scores():
    for name, metric in METRICS.items():
        means = [aggregate({"task": (name, 0.5)}, how) for how in AGGREGATES]
        assert means == [0.5, 0.75 if metric.correlation else 0.5]
    assert math.isnan(aggregate({}, "mean"))
    assert math.isnan(aggregate({"task": ("accuracy", math.nan)}, "course"))


def test_unknown_names_are_refused_with_the_nearest():
    with pytest.raises(UserError, match=r"Unknown overall score 'cours'\. Did you mean 'course'"):
        aggregate({"sst": ("accuracy", 1.0)}, "cours")
    with pytest.raises(UserError, match=r"Unknown metric 'pearsn'\. Did you mean 'pearson'"):
        aggregate({"sts": ("pearsn", 1.0)}, "mean")


@pytest.mark.parametrize(
    ("predictions", "constant"),
    [
        ([3, 3, 3], True),
        ([3, 3, 2], False),
        ([2.5, 2.5 + 1e-7, 2.5], True),
        ([1e-9, 2e-9], False),
        ([0.0, 0.0], True),
        ([[0, 1], [0, 1]], True),
        ([[0, 1], [1, 1]], False),
        ([3], False),
        ([], False),
        ([math.nan, math.nan], False),
    ],
)
def test_constant_predictions_are_noticed(predictions, constant):
    assert is_constant(predictions) is constant


def test_metrics_need_numpy_only():
    code = "import sys, json, teabert.metrics; print(json.dumps(sorted(sys.modules)))"
    loaded = json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout)
    assert "teabert.metrics" in loaded
    assert not {"torch", "sklearn", "scipy"} & set(loaded)
