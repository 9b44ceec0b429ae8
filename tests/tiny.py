"""A tiny world on disk: an encoder of two layers, 32 wide, and three small tasks; made by code, seeded, offline."""

import json
import random
from pathlib import Path

import torch
from safetensors.torch import save_file

from teabert.encoder import Encoder
from teabert.pretrained import read_shape, to_published

TEXT = (
    "the a film meal hotel book was is very not good bad fine awful great dull how do i you cook rice fix car learn "
    "guitar where what best way to child dog runs sleeps in park house"
)
WORDS = TEXT.split()
CONFIG = {
    "model_type": "bert",
    "vocab_size": 5 + len(WORDS),
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 48,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
    "hidden_act": "gelu",
    "pad_token_id": 0,
}


def write_encoder(folder: Path, seed: int = 0) -> Path:
    """A HuggingFace-style folder with random weights."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(seed)
    shape = read_shape(CONFIG, "tiny")
    save_file(to_published(Encoder(shape).state_dict(), shape), folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]) + "\n")
    return folder


def write_data(folder: Path, rows: int = 24) -> Path:
    """mood (5 classes), same (pairs, yes or no), near (pairs, 0 to 5), for train and dev."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, seed in (("train", 1), ("dev", 2)):
        draw = random.Random(seed)
        texts = [" ".join(draw.choices(WORDS, k=draw.randint(2, 12))) for _ in range(2 * rows)]
        mood = [f"{i}\t{text}\t{i % 5}" for i, text in enumerate(texts[:rows])]
        pairs = list(zip(texts[:rows], texts[rows:], strict=True))
        same = [f"{i}\t{a}\t{b}\t{i % 2}.0" for i, (a, b) in enumerate(pairs)]
        near = [f"{i}\t{a}\t{b}\t{draw.uniform(0, 5):.2f}" for i, (a, b) in enumerate(pairs)]
        for name, header, lines in (
            ("mood", "id\tsentence\tmood", mood),
            ("same", "id\tone\ttwo\tsame", same),
            ("near", "id\tone\ttwo\tnear", near),
        ):
            (folder / f"{name}-{split}.tsv").write_text("\n".join([header, *lines]) + "\n")
    return folder


def recipe(world: Path, **train: object) -> dict:
    """A recipe over all three tasks, with the world's encoder and data."""
    return {
        "name": "tiny",
        "encoder": str(world / "encoder"),
        "data": str(world / "data"),
        "tasks": {
            "mood": {
                "texts": "sentence",
                "label": "mood",
                "id": "id",
                "kind": "classes",
                "labels": [0, 1, 2, 3, 4],
                "files": "mood-{split}.tsv",
            },
            "same": {
                "texts": ["one", "two"],
                "label": "same",
                "id": "id",
                "kind": "binary",
                "labels": [0, 1],
                "files": "same-{split}.tsv",
            },
            "near": {
                "texts": ["one", "two"],
                "label": "near",
                "id": "id",
                "kind": "score",
                "range": [0, 5],
                "files": "near-{split}.tsv",
                "pair": "apart",
                "head": {"answer": "difference"},
            },
        },
        "sampling": {"batch": 8},
        "train": {"epochs": 2, "lr": 1e-3, "precision": "fp32", **train},
    }


def write_world(folder: Path) -> Path:
    """Encoder and data below one folder."""
    write_encoder(folder / "encoder")
    write_data(folder / "data")
    return folder
