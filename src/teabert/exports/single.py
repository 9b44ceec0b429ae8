"""One task out of many as plain weights: the injection folded away, the answer as one linear layer."""

from dataclasses import dataclass

import torch
from torch import Tensor

from teabert.encoder import Encoder
from teabert.errors import UserError
from teabert.heads.answering import Coral, Linear
from teabert.heads.reading import FirstToken, Mean, Perceptron
from teabert.injections import INJECTIONS, Injection
from teabert.injections.folding import fold
from teabert.injections.several import Several
from teabert.model import Model
from teabert.predictor import Predictor
from teabert.tasks import Task

INSTEAD = "Export the whole model instead with --to onnx, which fits every method and head, or serve the run folder itself."


@dataclass(frozen=True)
class Layer:
    """A linear layer as published: outputs = weight x + bias."""

    weight: Tensor
    """(outputs, width)"""
    bias: Tensor
    """(outputs,)"""


def plain_encoder(predictor: Predictor, task: Task) -> Encoder:
    """The encoder that, without injection, answers as the run's does for the task."""
    injection = predictor.model.injection
    if stuck := [name for name, method in _methods(injection) if not method.foldable]:
        folding = ", ".join(name for name, method in INJECTIONS.items() if method.foldable and name != "none")
        raise UserError(
            f"The injection '{', '.join(stuck)}' cannot be folded into a plain encoder: it does more than change weights."
            f" These fold: {folding}. {INSTEAD}"
        )
    return fold(predictor.model.encoder, injection, task.name)


def _methods(injection: Injection) -> list[tuple[str, Injection]]:
    each = injection.each() if isinstance(injection, Several) else [injection]
    names = {method: name for name, method in INJECTIONS.items()}
    return [(names.get(type(one), type(one).__name__), one) for one in each]


def linear_layer(model: Model, task: Task) -> Layer | None:
    """The task's answer as logits that transformers reads alike; nothing where it is more than a linear layer.

    A binary task gets two logits, 0 and z: their softmax is the sigmoid of z. A score's stretching joins the weights,
    but for its sigmoid.
    """
    answer = model.head(task.name).answer
    weight: Tensor
    bias: Tensor
    if isinstance(answer, Coral):
        weight, bias = answer.direction.weight.repeat(task.outputs, 1), answer.thresholds
    elif type(answer) is Linear:
        weight, bias = answer.linear.weight, answer.linear.bias
    else:
        return None
    weight, bias = weight.detach().clone(), bias.detach().clone()
    if task.kind == "binary":
        weight, bias = torch.cat([torch.zeros_like(weight), weight]), torch.cat([torch.zeros_like(bias), bias])
    use = model.uses[task.name]
    if use.stretch == "raw":
        low, high = use.span
        weight, bias = (high - low) * weight, low + (high - low) * bias
    return Layer(weight, bias)


def pooling(predictor: Predictor, task: Task) -> str | None:
    """How the head reads: pooler (tanh layer on the first token), first, mean, mlp; nothing where in another way."""
    reader = predictor.model.head(task.name).reader
    if isinstance(reader, Mean | Perceptron):
        return "mean" if isinstance(reader, Mean) else "mlp"
    if isinstance(reader, FirstToken):
        return "pooler" if reader.pools and predictor.model.encoder.pooler is not None else "first"
    return None


def label_facts(task: Task) -> dict[str, object]:
    """What config.json says of the outputs: their names, and how they become probabilities"""
    if task.kind == "score":
        return {"id2label": {"0": "score"}, "label2id": {"score": 0}, "problem_type": "regression"}
    names = [f"above {label}" for label in task.labels[:-1]] if task.kind == "ordinal" else list(task.labels)
    several = task.kind in ("multilabel", "ordinal")
    return {
        "id2label": {str(place): name for place, name in enumerate(names)},
        "label2id": {name: place for place, name in enumerate(names)},
        "problem_type": "multi_label_classification" if several else "single_label_classification",
    }


MEANING = {
    "classes": "One logit a label; softmax gives the probabilities.",
    "soft": "One logit a label; softmax gives the share of each.",
    "binary": "Two logits, 0 and z: softmax gives the probabilities, that of the second label is sigmoid(z).",
    "multilabel": "One logit a label; sigmoid gives each label's own probability, and it holds above one half.",
    "ordinal": (
        "One logit a threshold between two labels; sigmoid gives the probability of lying above it. The answer is the label"
        " at the place that counts how many logits are above 0."
    ),
    "score": "One number, the score itself.",
}
"""How to read the logits of each kind of task, for a README."""
