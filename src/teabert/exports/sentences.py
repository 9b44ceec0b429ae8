"""A task as a sentence-transformers folder: encoder, pooling, dense layers. Its embeddings are the run's vectors.

A linear answer comes along as one more output, `logits`; a dot product or a cosine is the model's similarity.
"""

from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn

from teabert.encoder import Encoder
from teabert.exports.folders import token_limit, write_json, write_tokenizer
from teabert.exports.single import Layer, label_facts
from teabert.heads.answering import Cosine, Dot
from teabert.heads.reading import Perceptron
from teabert.model import Model
from teabert.predictor import Predictor
from teabert.pretrained import to_config, to_published
from teabert.tasks import Task

HOME = "sentence_transformers.models"
CLASSES = {
    "bert": "BertModel",
    "roberta": "RobertaModel",
    "xlm-roberta": "XLMRobertaModel",
    "distilbert": "DistilBertModel",
    "mpnet": "MPNetModel",
}
EMBEDDING, LOGITS = "sentence_embedding", "logits"


@dataclass(frozen=True)
class Dense:
    """One dense layer of the chain, which reads one of the model's outputs and writes one."""

    layer: Layer
    activation: str = "linear.Identity"
    reads: str = EMBEDDING
    writes: str = EMBEDDING


def similarity(model: Model, task: Task) -> str | None:
    """The similarity of embeddings that is the task's answer; nothing where another answer is."""
    answer = model.head(task.name).answer
    return "dot" if isinstance(answer, Dot) else "cosine" if isinstance(answer, Cosine) else None


def write(predictor: Predictor, task: Task, encoder: Encoder, pooled: str, layer: Layer | None, folder: Path) -> None:
    """modules.json, config.json, weights, tokenizer, one folder for each further module."""
    shape = encoder.shape
    save_file(to_published(encoder.state_dict(), shape), folder / "model.safetensors", {"format": "pt"})
    facts = label_facts(task) if layer is not None else {}
    write_json(folder / "config.json", to_config(shape) | {"architectures": [CLASSES[shape.family]]} | facts)
    longest = token_limit(task, shape)
    write_tokenizer(predictor.text, shape, longest, folder)
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": longest, "do_lower_case": False})
    close = similarity(predictor.model, task) or "cosine"
    known: dict[str, Any] = {
        "model_type": "SentenceTransformer",
        "similarity_fn_name": close,
        "prompts": {},
        "default_prompt_name": None,
    }
    write_json(folder / "config_sentence_transformers.json", known)
    kinds = ["Transformer", "Pooling"]
    first = pooled in ("first", "pooler")
    modes = {"pooling_mode_cls_token": first, "pooling_mode_mean_tokens": not first, "pooling_mode_max_tokens": False}
    _module(folder, 1, "Pooling", {"word_embedding_dimension": shape.width} | modes)
    for place, dense in enumerate(chain(predictor.model, task, encoder, pooled, layer), 2):
        weights = {"linear.weight": dense.layer.weight, "linear.bias": dense.layer.bias}
        save_file(weights, _module(folder, place, "Dense", _dense(dense)) / "model.safetensors", {"format": "pt"})
        kinds.append("Dense")
    modules = [
        {"idx": place, "name": str(place), "path": f"{place}_{kind}" if place else "", "type": f"{HOME}.{kind}"}
        for place, kind in enumerate(kinds)
    ]
    write_json(folder / "modules.json", modules)


def chain(model: Model, task: Task, encoder: Encoder, pooled: str, layer: Layer | None) -> list[Dense]:
    """The dense layers: BERT's pooler or a perceptron, the projection of a dot product, the logits and their stretching."""
    found = []
    reader, answer = model.head(task.name).reader, model.head(task.name).answer
    if pooled == "pooler":
        assert encoder.pooler is not None
        found.append(Dense(_of(encoder.pooler), "activation.Tanh"))
    if isinstance(reader, Perceptron):
        linears = [each for each in reader.layers if isinstance(each, nn.Linear)]
        kinds = cycle(["activation.GELU", "linear.Identity"])
        found += [Dense(_of(linear), kind) for linear, kind in zip(linears, kinds, strict=False)]
    if isinstance(answer, Dot):
        found.append(Dense(_of(answer.projection)))
    if layer is not None:
        use = model.uses[task.name]
        squashed = use.stretch == "sigmoid"
        found.append(Dense(layer, "activation.Sigmoid" if squashed else "linear.Identity", writes=LOGITS))
        if squashed:
            low, high = use.span
            stretch = Layer(torch.tensor([[high - low]]), torch.tensor([low]))
            found.append(Dense(stretch, reads=LOGITS, writes=LOGITS))
    return found


def _of(linear: nn.Linear) -> Layer:
    return Layer(linear.weight.detach().clone(), linear.bias.detach().clone())


def _dense(dense: Dense) -> dict[str, Any]:
    outputs, width = dense.layer.weight.shape
    sizes = {"in_features": width, "out_features": outputs, "bias": True}
    places = {"module_input_name": dense.reads, "module_output_name": dense.writes}
    return sizes | places | {"activation_function": f"torch.nn.modules.{dense.activation}"}


def _module(folder: Path, place: int, kind: str, config: dict[str, Any]) -> Path:
    inner = folder / f"{place}_{kind}"
    inner.mkdir()
    write_json(inner / "config.json", config)
    return inner


def usage(model: Model, task: Task, layer: Layer | None) -> str:
    """How to use the folder, for its README."""
    if layer is not None:
        given = '("The first text.", "The second.")' if len(task.texts) == 2 else '"A text."'
        lines = f"""embeddings = model.encode([{given}])
logits = [row["logits"] for row in model.encode([{given}], output_value=None)]"""
    else:
        lines = """first, second = model.encode(["The first text."]), model.encode(["The second."])
similarity = model.similarity(first, second)"""
    return f"""```python
from sentence_transformers import SentenceTransformer  # tried with 6.2

model = SentenceTransformer("THIS_FOLDER")
{lines}
```
"""


def meaning(model: Model, task: Task) -> str:
    """What the similarity says of the task, for the README."""
    use = model.uses[task.name]
    low, high = use.span
    number = "max(0, similarity)" if similarity(model, task) == "cosine" else "similarity"
    if task.kind == "binary":
        return f"The probability of '{task.labels[1]}' is sigmoid({number})."
    inner = f"sigmoid({number})" if use.stretch == "sigmoid" else number
    return f"The score is {inner if use.stretch == 'none' else f'{low:g} + {high - low:g} * {inner}'}."
