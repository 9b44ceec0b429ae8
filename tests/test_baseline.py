"""The TF-IDF baseline: right on easy problems of every kind, deterministic, and clear about what it cannot use."""

import sys
from random import Random

import numpy as np
import pytest

from teabert.baseline import tfidf_predictions
from teabert.errors import UserError

FRUIT = ("apple", "pear", "plum", "cherry")
TOOLS = ("hammer", "saw", "drill", "wrench")
PLACES = ("kitchen", "garden", "cellar", "attic")
FIELDS = (FRUIT, TOOLS, PLACES)


def sentences(count, seed=0):
    """Sentences about a fruit, a tool or a place, and which of the three."""
    random = Random(seed)
    fields = [number % len(FIELDS) for number in range(count)]
    return [(f"we saw the {random.choice(FIELDS[field])} number {random.randrange(9)}",) for field in fields], fields


def pairs(count, seed=0):
    """Pairs of sentences and the share of words they have in common."""
    random = Random(seed)
    words = [word for field in FIELDS for word in field]
    texts, shares = [], []
    for number in range(count):
        shared = number % 5
        drawn = random.sample(words, 8 - shared)
        first, second = drawn[:4], drawn[:shared] + drawn[4:]
        texts.append((" ".join(first), " ".join(second)))
        shares.append(shared / 4)
    return texts, shares


def test_classes_are_told_by_their_words():
    texts, fields = sentences(90)
    dev, expected = sentences(30, seed=1)
    assert (tfidf_predictions("classes", texts, fields, dev) == expected).mean() > 0.9


def test_classes_may_be_named_by_words():
    texts, fields = sentences(90)
    names = np.array(["fruit", "tool", "place"])
    answers = tfidf_predictions("classes", texts, [str(names[field]) for field in fields], texts)
    assert (answers == names[fields]).all()


def test_binary_labels_of_pairs_follow_shared_words():
    texts, shares = pairs(200)
    dev, expected = pairs(50, seed=1)
    answers = tfidf_predictions("binary", texts, [int(share > 0.4) for share in shares], dev)
    assert (answers == (np.array(expected) > 0.4)).mean() > 0.9


def test_scores_of_pairs_follow_shared_words():
    texts, shares = pairs(200)
    dev, expected = pairs(50, seed=1)
    assert np.corrcoef(tfidf_predictions("score", texts, shares, dev), expected)[0, 1] > 0.9


def test_scores_of_single_texts_follow_their_words():
    texts, fields = sentences(90)
    dev, expected = sentences(30, seed=1)
    assert np.corrcoef(tfidf_predictions("score", texts, fields, dev), expected)[0, 1] > 0.9


def test_multilabel_predicts_each_label_alone():
    random = Random(0)
    labels = [[random.randrange(2) for _ in FIELDS] for _ in range(120)]
    texts = [(" ".join(["so"] + [random.choice(f) for f, on in zip(FIELDS, row, strict=True) if on]),) for row in labels]
    answers = tfidf_predictions("multilabel", texts[:90], labels[:90], texts[90:])
    assert answers.shape == (30, 3)
    assert (answers == labels[90:]).mean() > 0.9


def test_a_label_that_never_varies_is_predicted_everywhere():
    texts, _ = sentences(12)
    assert tfidf_predictions("multilabel", texts, [[1, 0]] * 12, texts[:3]).tolist() == [[1, 0]] * 3
    assert tfidf_predictions("score", texts, [2.5] * 12, texts[:3]).tolist() == [2.5] * 3


@pytest.mark.parametrize("kind", ["classes", "score"])
def test_a_handful_of_rows_is_enough(kind):
    assert tfidf_predictions(kind, [("good film",), ("bad film",)], [1, 0], [("good",)]).shape == (1,)


def test_answers_are_the_same_every_time():
    texts, shares = pairs(60)
    dev, _ = pairs(20, seed=1)
    first, second = (tfidf_predictions("score", texts, shares, dev) for _ in range(2))
    assert (first == second).all()


def test_texts_without_words_are_answered():
    texts, shares = pairs(40)
    assert np.isfinite(tfidf_predictions("score", [*texts, ("", "")], [*shares, 0], [("", ""), ("?!", "apple")])).all()


def test_no_dev_texts_give_no_answers():
    texts, fields = sentences(6)
    assert tfidf_predictions("classes", texts, fields, []).shape == (0,)


def test_input_that_does_not_fit_is_named():
    texts, fields = sentences(6)
    with pytest.raises(UserError, match=r"'clases'.*Did you mean 'classes'"):
        tfidf_predictions("clases", texts, fields, texts)
    with pytest.raises(UserError, match="6 training texts and 5 labels"):
        tfidf_predictions("classes", texts, fields[:5], texts)
    with pytest.raises(UserError, match="0 training texts"):
        tfidf_predictions("classes", [], [], texts)
    with pytest.raises(UserError, match="one string in every text, or two"):
        tfidf_predictions("classes", texts, fields, [("one", "two")])


def test_a_missing_scikit_learn_names_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.feature_extraction.text", None)
    texts, fields = sentences(6)
    with pytest.raises(UserError, match=r"pip install 'teabert\[baseline\]'"):
        tfidf_predictions("classes", texts, fields, texts)
