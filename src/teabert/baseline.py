"""The baseline to beat: texts and labels in, predictions by TF-IDF and a linear model out.

Words and word pairs (for single texts also pieces of words) are weighted by TF-IDF. A pair of texts becomes what
both share, where they differ, how near they are and how their lengths compare. Cross-validation on the training
rows chooses the regularisation.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from teabert.errors import UserError, missing_extra, unknown

KINDS = ("classes", "binary", "multilabel", "score")
STRENGTHS = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
"""The inverse regularisation strengths tried, weakest model first."""
FOLDS = 5
TUNING_ROWS = 5000
"""Cross-validation uses this many training rows at most; the final fit uses all of them."""
COMMON = 5000
"""From this many training rows on, a word that occurs in one text only is left out."""

Fit = Callable[[Any, np.ndarray, float], Any]
Texts = Sequence[Sequence[str]]


def tfidf_predictions(
    kind: str, train_texts: Texts, train_labels: Sequence[Any] | np.ndarray, dev_texts: Texts
) -> np.ndarray:
    """Labels predicted for dev texts of one or two strings each; 0/1 per label if multilabel, numbers if score."""
    if kind not in KINDS:
        raise unknown("kind of label", kind, KINDS)
    if not len(train_texts) or len(train_texts) != len(train_labels):
        given = f"{len(train_texts)} training texts and {len(train_labels)} labels"
        raise UserError(f"The TF-IDF baseline got {given}; it needs at least one text, and one label for each.")
    if {len(texts) for texts in (*train_texts, *dev_texts)} not in ({1}, {2}):
        raise UserError("The TF-IDF baseline needs one string in every text, or two in every text.")
    labels = np.asarray(train_labels, dtype=float if kind == "score" else None)
    if not len(dev_texts):
        return labels[:0]
    train, dev = _features(train_texts, dev_texts)
    if kind == "multilabel":
        columns = [_predict(_classifier, train, labels[:, label], dev) for label in range(labels.shape[1])]
        return np.stack(columns, axis=1)
    return _predict(_ridge if kind == "score" else _classifier, train, labels, dev)


def _features(train_texts: Texts, dev_texts: Texts) -> tuple[Any, Any]:
    """Sparse features of both splits; words and their weights come from the training texts alone."""
    try:
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.pipeline import make_union
    except ImportError as error:
        raise missing_extra("scikit-learn", "baseline", "The TF-IDF baseline") from error

    rarest = 2 if len(train_texts) >= COMMON else 1
    vectors = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, min_df=rarest, token_pattern=r"(?u)\w+|[?!]")
    if len(train_texts[0]) == 1:
        pieces = TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 5), sublinear_tf=True, min_df=rarest)
        vectors = make_union(vectors, pieces)
    vectors.fit([text for texts in train_texts for text in texts])
    return _transform(vectors, train_texts), _transform(vectors, dev_texts)


def _transform(vectors: Any, rows: Texts) -> Any:
    """(rows, features): a single text's own weights, or how the two texts of a pair compare."""
    from scipy.sparse import csr_matrix, hstack

    first, *second = (vectors.transform(side) for side in zip(*rows, strict=True))
    if not second:
        return first
    shared, apart = first.multiply(second[0]), abs(first - second[0])
    cosine = np.asarray(shared.sum(axis=1)).ravel()
    words = np.array([[len(text.split()) for text in texts] for texts in rows])
    more, fewer = words.max(axis=1), words.min(axis=1)
    measures = np.stack([cosine, cosine**2, (more - fewer) / 10, 1 - fewer / np.maximum(more, 1)], axis=1)
    return hstack([shared, apart, csr_matrix(measures)], format="csr")


def _classifier(features: Any, labels: np.ndarray, strength: float) -> Any:
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier

    one = LogisticRegression(C=strength, solver="liblinear", random_state=0)
    return OneVsRestClassifier(one).fit(features, labels)


def _ridge(features: Any, labels: np.ndarray, strength: float) -> Any:
    from sklearn.linear_model import Ridge

    return Ridge(alpha=1 / strength, solver="sparse_cg").fit(features, labels)


def _predict(fit: Fit, train: Any, labels: np.ndarray, dev: Any) -> np.ndarray:
    """Fit with the best strength and predict; where all training labels agree, so does the answer."""
    if (labels == labels[0]).all():
        return np.full(dev.shape[0], labels[0])
    return np.asarray(fit(train, labels, _best_strength(fit, train, labels)).predict(dev))


def _best_strength(fit: Fit, features: Any, labels: np.ndarray) -> float:
    """The strength that predicts held-out training rows best: by mean score over the folds, ties to the weaker."""
    order = np.random.default_rng(0).permutation(len(labels))[:TUNING_ROWS]
    scores = dict.fromkeys(STRENGTHS, 0.0)
    for held_out in np.array_split(order, FOLDS):
        kept = np.setdiff1d(order, held_out)
        if not len(held_out) or not len(kept) or (labels[kept] == labels[kept[0]]).all():
            continue
        for strength in STRENGTHS:
            model = fit(features[kept], labels[kept], strength)
            answers = model.predict(features[held_out])
            # a score counts by its squared error, a class by being right
            gain = -((answers - labels[held_out]) ** 2) if fit is _ridge else answers == labels[held_out]
            scores[strength] += float(np.mean(gain))
    return max(STRENGTHS, key=lambda strength: scores[strength]) if any(scores.values()) else 1.0
