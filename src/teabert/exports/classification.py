"""A task as transformers' sequence classification: the folder that AutoModelForSequenceClassification loads.

BERT pools with its tanh layer; RoBERTa and MPNet have the same layer inside their classifier; DistilBERT has a ReLU
there, which z = relu(z) - relu(-z) undoes exactly.
"""

from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from teabert.encoder import Encoder
from teabert.exports.folders import token_limit, write_json, write_tokenizer
from teabert.exports.single import Layer, label_facts
from teabert.predictor import Predictor
from teabert.pretrained import model_prefix, to_config, to_published
from teabert.tasks import Task

CLASSES = {
    "bert": "BertForSequenceClassification",
    "roberta": "RobertaForSequenceClassification",
    "xlm-roberta": "XLMRobertaForSequenceClassification",
    "distilbert": "DistilBertForSequenceClassification",
    "mpnet": "MPNetForSequenceClassification",
}
PIPELINE = {"multi_label_classification": ", top_k=None", "single_label_classification": "", "regression": ""}


def fits(encoder: Encoder, pooled: str, layer: Layer) -> bool:
    """Whether the family's classifier can hold this pooling and this layer exactly."""
    if encoder.shape.family == "distilbert":
        return pooled == "first" and 2 * len(layer.weight) <= encoder.shape.width
    return pooled == "pooler"


def write(predictor: Predictor, task: Task, encoder: Encoder, layer: Layer, folder: Path) -> None:
    """config.json, weights, tokenizer."""
    shape = encoder.shape
    weights = to_published(encoder.state_dict(), shape)
    pooler = {name: weights.pop(name) for name in [name for name in weights if name.startswith("pooler.")]}
    named = {model_prefix(shape) + name: tensor for name, tensor in weights.items()}
    save_file(named | _classifier(shape.family, layer, pooler), folder / "model.safetensors", {"format": "pt"})
    write_json(folder / "config.json", to_config(shape) | {"architectures": [CLASSES[shape.family]]} | label_facts(task))
    write_tokenizer(predictor.text, shape, token_limit(task, shape), folder)


def _classifier(family: str, layer: Layer, pooler: dict[str, Tensor]) -> dict[str, Tensor]:
    """The weights around the encoder, by the family's own names"""
    if family == "distilbert":
        return _through_relu(layer)
    if family == "bert":
        inside = {f"bert.{name}": tensor for name, tensor in pooler.items()}
        return inside | {"classifier.weight": layer.weight, "classifier.bias": layer.bias}
    inside = {name.replace("pooler.", "classifier."): tensor for name, tensor in pooler.items()}
    return inside | {"classifier.out_proj.weight": layer.weight, "classifier.out_proj.bias": layer.bias}


def _through_relu(layer: Layer) -> dict[str, Tensor]:
    """The layer as two with a ReLU between: z and -z first, then relu(z) - relu(-z) = z"""
    outputs, width = layer.weight.shape
    before, bias, after = torch.zeros(width, width), torch.zeros(width), torch.zeros(outputs, width)
    before[: 2 * outputs] = torch.cat([layer.weight, -layer.weight])
    bias[: 2 * outputs] = torch.cat([layer.bias, -layer.bias])
    after[:, : 2 * outputs] = torch.cat([torch.eye(outputs), -torch.eye(outputs)], dim=1)
    names = {"pre_classifier.weight": before, "pre_classifier.bias": bias}
    return names | {"classifier.weight": after, "classifier.bias": torch.zeros(outputs)}


def usage(task: Task) -> str:
    """How to use the folder, for its README."""
    given = '{"text": "The first text.", "text_pair": "The second."}' if len(task.texts) == 2 else '"A text."'
    more = PIPELINE[str(label_facts(task)["problem_type"])]
    return f"""```python
from transformers import pipeline

answer = pipeline("text-classification", "THIS_FOLDER", truncation=True{more})
print(answer({given}))
```
"""
