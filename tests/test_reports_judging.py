"""Intervals against scipy's bootstrap, matrices against scikit-learn's."""

import numpy as np
import pytest

from teabert.metrics import METRICS
from teabert.reports.judging import confusions, interval, levels, overall_intervals, resampled
from teabert.tasks import make_task

KINDS = {
    "classes": {"labels": ["a", "b", "c", "d"]},
    "binary": {"labels": ["no", "yes"]},
    "multilabel": {"labels": ["x", "y", "z"]},
    "score": {"range": [0, 5]},
}


def task_of(kind, name="task"):
    return make_task(name, {"texts": "text", "files": "{split}.csv", "kind": kind} | KINDS[kind], name)


def answers(kind, rows=400, seed=0):
    """Predictions and truth of a model that is often right"""
    draw = np.random.default_rng(seed)
    if kind == "score":
        truth = draw.uniform(0, 5, rows)
        return truth + draw.normal(0, 1.2, rows), truth
    size = (rows, 3) if kind == "multilabel" else rows
    truth = draw.integers(0, {"classes": 4}.get(kind, 2), size)
    return np.where(draw.random(size) < 0.7, truth, draw.permutation(truth)), truth


@pytest.mark.parametrize("kind", KINDS)
def test_intervals_are_those_of_scipy(kind):
    from scipy.stats import bootstrap

    task, (predictions, truth) = task_of(kind), answers(kind)
    for metric, values in resampled(task, predictions, truth, seed=1).items():

        def score(rows, metric=metric):
            return METRICS[metric](predictions[rows], truth[rows])

        wanted = bootstrap(
            (np.arange(len(truth)),), score, n_resamples=2000, method="percentile", vectorized=False, rng=2
        ).confidence_interval
        width = wanted.high - wanted.low
        assert width > 0.02
        np.testing.assert_allclose(interval(values), wanted, atol=0.12 * width)


def test_intervals_depend_on_nothing_but_seed_and_rows():
    task, (predictions, truth) = task_of("classes"), answers("classes")
    first = resampled(task, predictions, truth, seed=1)
    assert (first["accuracy"] == resampled(task, predictions, truth, seed=1)["accuracy"]).all()
    assert (first["accuracy"] != resampled(task, predictions, truth, seed=2)["accuracy"]).any()


def test_overall_interval_is_narrower_than_its_parts_and_counts_correlations_both_ways():
    tasks = {kind: task_of(kind, kind) for kind in ("classes", "score")}
    drawn = {kind: resampled(task, *answers(kind), seed=1) for kind, task in tasks.items()}
    found = overall_intervals(tasks, drawn)
    accuracy, pearson = drawn["classes"]["accuracy"], drawn["score"]["pearson"]
    assert found["mean"] == interval((accuracy + pearson) / 2)
    np.testing.assert_allclose(found["course"], interval((accuracy + (1 + pearson) / 2) / 2))
    assert np.ptp(found["mean"]) < np.ptp(interval(accuracy))


@pytest.mark.parametrize("kind", ["classes", "binary"])
def test_matrix_is_scikit_learn_s(kind):
    from sklearn.metrics import confusion_matrix

    task, (predictions, truth) = task_of(kind), answers(kind)
    (found,) = confusions(task, predictions, truth).values()
    assert found.labels == task.labels
    np.testing.assert_array_equal(found.counts, confusion_matrix(truth, predictions, labels=range(len(task.labels))))


def test_label_that_never_occurs_keeps_its_row_and_column():
    (found,) = confusions(task_of("classes"), np.array([0, 0, 2]), np.array([0, 2, 2])).values()
    np.testing.assert_array_equal(found.counts, [[1, 0, 0, 0], [0] * 4, [1, 0, 1, 0], [0] * 4])


def test_every_label_of_several_has_a_matrix_of_its_own():
    from sklearn.metrics import multilabel_confusion_matrix

    predictions, truth = answers("multilabel")
    found = confusions(task_of("multilabel"), predictions, truth)
    assert list(found) == ["x", "y", "z"]
    np.testing.assert_array_equal([each.counts for each in found.values()], multilabel_confusion_matrix(truth, predictions))


def test_scores_count_to_the_nearest_level_and_those_outside_to_the_ends():
    from sklearn.metrics import confusion_matrix

    task, (predictions, truth) = task_of("score"), answers("score")
    (found,) = confusions(task, predictions, truth).values()
    assert found.labels == ("0", "1", "2", "3", "4", "5")
    nearest = [np.clip(np.round(each), 0, 5).astype(int) for each in (truth, predictions)]
    np.testing.assert_array_equal(found.counts, confusion_matrix(*nearest, labels=range(6)))
    assert levels(task, np.array([-3.0, 0.4, 4.6, 99.0])).tolist() == [0, 0, 5, 5]
