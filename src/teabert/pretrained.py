"""Published weight names <-> ours: a HuggingFace-style folder in, our Encoder out; the only file that knows the names."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from teabert.encoder import ACTIVATIONS, Encoder, EncoderShape
from teabert.errors import UserError

BERT_BLOCK = {
    "query": "attention.self.query",
    "key": "attention.self.key",
    "value": "attention.self.value",
    "output": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "inner": "intermediate.dense",
    "outer": "output.dense",
    "final_norm": "output.LayerNorm",
}
MPNET_BLOCK = BERT_BLOCK | {
    "query": "attention.attn.q",
    "key": "attention.attn.k",
    "value": "attention.attn.v",
    "output": "attention.attn.o",
    "attention_norm": "attention.LayerNorm",
}
DISTILBERT_BLOCK = {
    "query": "attention.q_lin",
    "key": "attention.k_lin",
    "value": "attention.v_lin",
    "output": "attention.out_lin",
    "attention_norm": "sa_layer_norm",
    "inner": "ffn.lin1",
    "outer": "ffn.lin2",
    "final_norm": "output_layer_norm",
}
FAMILIES = {
    "bert": ("encoder.layer", BERT_BLOCK),
    "roberta": ("encoder.layer", BERT_BLOCK),
    "xlm-roberta": ("encoder.layer", BERT_BLOCK),
    "distilbert": ("transformer.layer", DISTILBERT_BLOCK),
    "mpnet": ("encoder.layer", MPNET_BLOCK),
}
LIMITS = {"num_hidden_layers": 1000, "n_layers": 1000}
"""A damaged config.json is not to fill the memory; weights of the wrong size are refused before any is copied."""
PREFIXES = ("bert.", "roberta.", "distilbert.", "mpnet.")
DISTILBERT_KEYS = {
    "vocab_size": "vocabulary",
    "dim": "width",
    "n_layers": "layers",
    "n_heads": "attention_heads",
    "hidden_dim": "inner_width",
    "max_position_embeddings": "positions",
    "activation": "activation",
    "dropout": "dropout",
    "attention_dropout": "attention_dropout",
    "pad_token_id": "padding_id",
}
"""Keys of config.json -> facts of the shape."""
BERT_KEYS = {
    "vocab_size": "vocabulary",
    "hidden_size": "width",
    "num_hidden_layers": "layers",
    "num_attention_heads": "attention_heads",
    "intermediate_size": "inner_width",
    "max_position_embeddings": "positions",
    "hidden_act": "activation",
    "hidden_dropout_prob": "dropout",
    "attention_probs_dropout_prob": "attention_dropout",
    "pad_token_id": "padding_id",
    "layer_norm_eps": "epsilon",
    "type_vocab_size": "segments",
}
MPNET_KEYS = {key: fact for key, fact in BERT_KEYS.items() if fact != "segments"} | {
    "relative_attention_num_buckets": "relative_buckets"
}
NOT_ENCODER = re.compile(
    r"^(cls|lm_head|classifier|qa_outputs|pre_classifier|vocab_transform|vocab_layer_norm|vocab_projector)\.|position_ids$"
)
"""Weights of the pre-training heads, and a buffer of old checkpoints: nothing of the encoder."""


def read_shape(config: Mapping[str, Any], where: str) -> EncoderShape:
    """The shape that a published config.json describes."""
    family = config.get("model_type")
    if not isinstance(family, str) or family not in FAMILIES:
        raise UserError(f"{where}: model_type {family!r} is not supported. Supported: {', '.join(FAMILIES)}.")
    position = config.get("position_embedding_type", "absolute")
    if position != "absolute":
        raise UserError(f"{where}: position_embedding_type {position!r} is not supported, only 'absolute'.")
    try:
        shape = _shape_of(family, config)
    except ValueError as error:
        raise UserError(f"{where}: {error}.") from None
    if shape.activation not in ACTIVATIONS:
        raise UserError(f"{where}: activation {shape.activation!r} is not supported. Supported: {', '.join(ACTIVATIONS)}.")
    if shape.width % shape.attention_heads:
        raise UserError(f"{where}: width {shape.width} does not divide into {shape.attention_heads} attention heads.")
    if shape.longest < 1:
        raise UserError(f"{where}: max_position_embeddings {shape.positions} leaves no place for a token.")
    if shape.padding_id >= shape.vocabulary:
        raise UserError(f"{where}: pad_token_id {shape.padding_id} is not in a vocabulary of {shape.vocabulary}.")
    return shape


def _whole(config: Mapping[str, Any], key: str, default: int | None = None, least: int = 1) -> int:
    """A whole number of the config"""
    value = default if config.get(key) is None else config[key]
    if value is None:
        raise ValueError(f"'{key}' is missing")
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < LIMITS.get(key, 2**31):
        raise ValueError(f"'{key}' must be a whole number from {least}, got {value!r}")
    return value


def _part(config: Mapping[str, Any], key: str, default: float) -> float:
    """A number of the config between 0 and 1"""
    value = config.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
        raise ValueError(f"'{key}' must be a number from 0 to below 1, got {value!r}")
    return float(value)


def _shape_of(family: str, config: Mapping[str, Any]) -> EncoderShape:
    if family == "distilbert":
        return EncoderShape(
            family=family,
            vocabulary=_whole(config, "vocab_size"),
            width=_whole(config, "dim"),
            layers=_whole(config, "n_layers"),
            attention_heads=_whole(config, "n_heads"),
            inner_width=_whole(config, "hidden_dim"),
            positions=_whole(config, "max_position_embeddings"),
            segments=0,
            epsilon=1e-12,
            activation=str(config.get("activation", "gelu")),
            dropout=_part(config, "dropout", 0.1),
            attention_dropout=_part(config, "attention_dropout", 0.1),
            pooler=False,
            padding_id=_whole(config, "pad_token_id", 0, least=0),
        )
    padding = _whole(config, "pad_token_id", 0 if family == "bert" else 1, least=0)
    return EncoderShape(
        family=family,
        vocabulary=_whole(config, "vocab_size"),
        width=_whole(config, "hidden_size"),
        layers=_whole(config, "num_hidden_layers"),
        attention_heads=_whole(config, "num_attention_heads"),
        inner_width=_whole(config, "intermediate_size"),
        positions=_whole(config, "max_position_embeddings"),
        segments=0 if family == "mpnet" else _whole(config, "type_vocab_size", 2, least=0),
        epsilon=_part(config, "layer_norm_eps", 1e-12),
        activation=str(config.get("hidden_act", "gelu")),
        dropout=_part(config, "hidden_dropout_prob", 0.1),
        attention_dropout=_part(config, "attention_probs_dropout_prob", 0.1),
        first_position=0 if family == "bert" else padding + 1,
        relative_buckets=_whole(config, "relative_attention_num_buckets", 32, least=4) if family == "mpnet" else 0,
        padding_id=padding,
    )


def to_config(shape: EncoderShape) -> dict[str, Any]:
    """The shape -> what a published config.json says of it; read_shape reads it back."""
    keys = {"distilbert": DISTILBERT_KEYS, "mpnet": MPNET_KEYS}.get(shape.family, BERT_KEYS)
    return {"model_type": shape.family, "dtype": "float32"} | {key: getattr(shape, fact) for key, fact in keys.items()}


def model_prefix(shape: EncoderShape) -> str:
    """What stands before the encoder's weight names where a model has more than the encoder"""
    return "roberta." if shape.family == "xlm-roberta" else f"{shape.family}."


def published_names(shape: EncoderShape) -> dict[str, tuple[str, ...]]:
    """Our parameter -> the published tensors it is made of (three for the fused queries, keys and values)."""
    layers, block = FAMILIES[shape.family]
    names: dict[str, tuple[str, ...]] = {
        "embeddings.word.weight": ("embeddings.word_embeddings.weight",),
        "embeddings.position.weight": ("embeddings.position_embeddings.weight",),
    }
    if shape.segments:
        names["embeddings.segment.weight"] = ("embeddings.token_type_embeddings.weight",)
    if shape.relative_buckets:
        names["distance.table.weight"] = ("encoder.relative_attention_bias.weight",)
    for kind in ("weight", "bias"):
        names[f"embedding_norm.{kind}"] = (f"embeddings.LayerNorm.{kind}",)
        if shape.pooler:
            names[f"pooler.{kind}"] = (f"pooler.dense.{kind}",)
        for layer in range(shape.layers):
            theirs = {ours: f"{layers}.{layer}.{name}.{kind}" for ours, name in block.items()}
            names[f"blocks.{layer}.projection.{kind}"] = (theirs["query"], theirs["key"], theirs["value"])
            for ours in ("output", "attention_norm", "inner", "outer", "final_norm"):
                names[f"blocks.{layer}.{ours}.{kind}"] = (theirs[ours],)
    return names


def to_ours(published: Mapping[str, Tensor], shape: EncoderShape, where: str) -> tuple[dict[str, Tensor], list[str]]:
    """Published tensors -> our parameters, and the names of the (pooler) weights that are missing."""
    theirs, inside = _plain(published)
    _check_shapes(theirs, shape, where)
    ours: dict[str, Tensor] = {}
    missing: list[str] = []
    for name, parts in published_names(shape).items():
        absent = [part for part in parts if part not in theirs]
        missing += absent
        found = [theirs.pop(part) for part in parts if part in theirs]
        if not absent:
            ours[name] = torch.cat(found)
    unknown = [name for name in theirs if name in inside and not NOT_ENCODER.search(name)]
    fatal = [name for name in missing if not name.startswith("pooler.")]
    if fatal or unknown:
        raise UserError(
            f"{where}: the weights do not fit a {shape.family} of {shape.layers} layers."
            + (f"\n  missing: {', '.join(fatal)}" if fatal else "")
            + (f"\n  unknown: {', '.join(unknown)}" if unknown else "")
        )
    return ours, missing


def _check_shapes(theirs: Mapping[str, Tensor], shape: EncoderShape, where: str) -> None:
    square = (shape.width, shape.width)
    sizes: dict[str, tuple[int, ...]] = {
        "word": (shape.vocabulary, shape.width),
        "position": (shape.positions, shape.width),
        "segment": (shape.segments, shape.width),
        "table": (shape.relative_buckets, shape.attention_heads),
        "inner": (shape.inner_width, shape.width),
        "outer": (shape.width, shape.inner_width),
    } | dict.fromkeys(("embedding_norm", "attention_norm", "final_norm"), square[:1])
    wrong = []
    for name, parts in published_names(shape).items():
        module, kind = name.split(".")[-2:]
        size = sizes.get(module, square)
        size = size[:1] if kind == "bias" else size
        wrong += [
            f"{part}: {tuple(theirs[part].shape)} instead of {size}"
            for part in parts
            if part in theirs and theirs[part].shape != size
        ]
    if wrong:
        raise UserError(f"{where}: weights of another shape than config.json says: {'; '.join(wrong)}")


def to_published(ours: Mapping[str, Tensor], shape: EncoderShape) -> dict[str, Tensor]:
    """Our parameters -> published tensors."""
    theirs: dict[str, Tensor] = {}
    for name, parts in published_names(shape).items():
        for part, tensor in zip(parts, ours[name].chunk(len(parts)), strict=True):
            theirs[part] = tensor.contiguous()
    return theirs


def _plain(published: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], set[str]]:
    """Names without the model's prefix and with today's LayerNorm names; and which of them are the encoder's own."""
    prefix = next((prefix for prefix in PREFIXES if any(name.startswith(prefix) for name in published)), "")
    plain: dict[str, Tensor] = {}
    inside: set[str] = set()
    for name, tensor in published.items():
        short = name.removeprefix(prefix)
        short = re.sub(r"LayerNorm\.gamma$", "LayerNorm.weight", short)
        short = re.sub(r"LayerNorm\.beta$", "LayerNorm.bias", short)
        plain[short] = tensor
        if name.startswith(prefix):
            inside.add(short)
    return plain, inside


def folder_shape(folder: Path) -> EncoderShape:
    """The shape of the encoder in a HuggingFace-style folder, without reading its weights."""
    config_file = folder / "config.json"
    try:
        config = json.loads(config_file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{folder} is no encoder folder: it has no config.json.") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{config_file} is not valid JSON: {error}") from None
    if not isinstance(config, dict):
        raise UserError(f"{config_file} does not hold a JSON object.")
    return read_shape(config, str(config_file))


def load_encoder(folder: Path) -> tuple[Encoder, list[str]]:
    """The encoder in a HuggingFace-style folder, and the names of pooler weights that it does not bring."""
    shape = folder_shape(folder)
    weights, missing = to_ours(read_weights(folder), shape, str(folder))
    encoder = Encoder(shape)
    encoder.load_state_dict({name: tensor.float() for name, tensor in weights.items()}, strict=False)
    return encoder, missing


def read_weights(folder: Path) -> dict[str, Tensor]:
    """The published tensors: safetensors, or an old pytorch_model.bin through torch's weights-only loader."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    modern, old = folder / "model.safetensors", folder / "pytorch_model.bin"
    if modern.exists():
        try:
            return load_file(modern)
        except SafetensorError as error:
            raise UserError(f"{modern} is damaged or no safetensors file: {error}. Fetch it again.") from None
    if old.exists():
        try:
            tensors = torch.load(old, map_location="cpu", weights_only=True)
        except Exception as error:  # the unpickler raises many kinds; all mean that the file is not plain weights
            raise UserError(f"{old} does not hold plain weights: {(str(error) or repr(error)).splitlines()[0]}") from None
        if not isinstance(tensors, Mapping):
            raise UserError(f"{old} does not hold plain weights but a {type(tensors).__name__}.")
        return {str(name): tensor for name, tensor in tensors.items() if isinstance(tensor, Tensor)}
    raise UserError(f"{folder} holds no weights: neither model.safetensors nor pytorch_model.bin.")
