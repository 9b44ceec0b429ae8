"""Two-layer, 32-wide encoders of every family and a small vocabulary, made in memory; and the real ones, where they are."""

import os
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import settings
from tokenizers import Tokenizer
from tokenizers.implementations import BertWordPieceTokenizer
from torch import Tensor

from teabert import hub
from teabert.batches import Batch, Rows, collate
from teabert.encoder import Encoder, EncoderShape
from teabert.errors import UserError
from teabert.injections import Injection
from teabert.model import Model, build_heads
from teabert.tasks import Task, make_task
from teabert.text import TextEncoder

torch.set_num_threads(1)
# the first example of a test pays for imports; CI draws the same examples every time, other runs draw new ones
settings.register_profile("teabert", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("teabert")

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
COMMON = "the a film was good bad very not dull nice plot i it is how can do you learn why cook rice"
PIECES = "##s ##ly ##er ##ing ##n . , ? ' ! - 1 2 e x y z ##a ##b ##e ##t 中"
WORDS = (*SPECIAL, *COMMON.split(), *PIECES.split())
FAMILIES = ("bert", "distilbert", "roberta", "mpnet")
LONGEST = 40
"""Tokens that the tiny encoders take."""


def tiny_shape(**changes) -> EncoderShape:
    """The shape of a tiny BERT over WORDS"""
    facts = {"family": "bert", "vocabulary": len(WORDS), "width": 32, "layers": 2, "attention_heads": 4}
    return EncoderShape(**facts | {"inner_width": 48, "positions": LONGEST, "segments": 2, "epsilon": 1e-12} | changes)


def spread(module: torch.nn.Module, seed: int = 0) -> None:
    """Weights so far from zero, biases and norms included, that nothing hides behind small numbers"""
    source = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            noise = torch.randn(parameter.shape, generator=source)
            norm = "norm" in name.lower() and name.endswith("weight")
            parameter.copy_(1 + 0.2 * noise if norm else 0.2 * noise)


@cache
def published(family: str) -> Any:
    """transformers' own tiny model of a family"""
    import transformers  # takes seconds, and most tests do without

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    common = {"vocab_size": len(WORDS), "attn_implementation": "eager"}
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
    if family == "distilbert":
        sizes = {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48}
    # facts that differ between the families, so that a fact not read from config.json shows
    facts = {
        "bert": {},
        "distilbert": {"activation": "relu"},
        "roberta": {"layer_norm_eps": 1e-2},
        "mpnet": {"layer_norm_eps": 1e-3, "hidden_act": "gelu_new"},
    }[family]
    ahead = 2 if family in ("roberta", "mpnet") else 0  # they count positions from 2
    kind = {"bert": "Bert", "distilbert": "DistilBert", "roberta": "Roberta", "mpnet": "MPNet"}[family]
    config = getattr(transformers, f"{kind}Config")(max_position_embeddings=LONGEST + ahead, **common | sizes | facts)
    model = getattr(transformers, f"{kind}Model")(config).eval()
    spread(model)
    return model


@pytest.fixture(scope="session")
def folder_of(tmp_path_factory):
    """A family's name -> a folder with its tiny published model as transformers saves it"""

    @cache
    def folder(family: str) -> Path:
        path = tmp_path_factory.mktemp("published") / family
        published(family).save_pretrained(path)
        return path

    return folder


@pytest.fixture
def encoder() -> Encoder:
    """A tiny BERT of our own, in eval mode, weights far from zero"""
    model = Encoder(tiny_shape())
    spread(model)
    return model.eval()


@pytest.fixture(scope="session")
def words() -> Tokenizer:
    """A WordPiece tokenizer over WORDS"""
    return BertWordPieceTokenizer({word: place for place, word in enumerate(WORDS)})._tokenizer


@pytest.fixture(scope="session")
def text(words) -> TextEncoder:
    """Text to ids of WORDS"""
    return TextEncoder(words, LONGEST)


def rows_of(task: str, lengths, seed: int = 0, second_text=None, labels=None) -> Rows:
    """Random token ids of these lengths; lengths: one list per sequence of an example, or a plain list for one"""
    parts = lengths if isinstance(lengths[0], list | tuple) else [lengths]
    draw = np.random.default_rng(seed)
    sequences = tuple([draw.integers(len(SPECIAL), len(WORDS), n).astype(np.int32) for n in part] for part in parts)
    count = len(parts[0])
    given = np.zeros(count, dtype=np.float32) if labels is None else np.asarray(labels, dtype=np.float32)
    return Rows(task, sequences, second_text, given, tuple(str(row) for row in range(count)))


def packed(rows: Rows) -> Batch:
    """All rows of one task in one batch"""
    return collate([(rows, row) for row in range(len(rows))], [rows.task])


def plain(shape: EncoderShape | None = None) -> Injection:
    """The injection that changes nothing"""
    return Injection(Injection.Config(), shape or tiny_shape(), ["task"])


TASKS = {
    "mood": {"texts": "sentence", "kind": "classes", "labels": ["bad", "so-so", "good"]},
    "same": {"texts": ["one", "two"], "kind": "binary", "labels": [0, 1], "pair": "apart"},
    "near": {"texts": ["one", "two"], "kind": "score", "range": [0, 5]},
}
HEADS = {"same": {"answer": {"method": "dot", "width": 16}}, "near": {"read": "first_token"}}


def tiny_tasks() -> dict[str, Task]:
    """One text with classes, a pair encoded apart, a pair encoded together"""
    return {
        name: make_task(name, facts | {"files": "{split}.csv", "head": HEADS.get(name, {}) | {"dropout": 0.0}}, name)
        for name, facts in TASKS.items()
    }


def tiny_rows(counts: dict[str, int], seed: int = 0) -> dict[str, Rows]:
    """Random rows of the tiny tasks, ragged and labelled"""
    draw = np.random.default_rng(seed)
    lengths = {name: [draw.integers(2, 15, count).tolist() for _ in range(2)] for name, count in counts.items()}
    made = {}
    for name, count in counts.items():
        parts = lengths[name] if name == "same" else lengths[name][:1]
        second = [1 + length // 2 for length in parts[0]] if name == "near" else None
        labels = draw.uniform(0, 5, count) if name == "near" else draw.integers(0, 2 if name == "same" else 3, count)
        made[name] = rows_of(name, parts, seed + len(made), second, labels)
    return made


def tiny_model(seed: int = 0) -> Model:
    """A model of the tiny tasks, in eval mode, weights far from zero"""
    tasks = tiny_tasks()
    base = Encoder(tiny_shape())
    model = Model(base, Injection(Injection.Config(), base.shape, tuple(tasks)), *build_heads(tasks, base))
    spread(model, seed)
    return model.eval()


def padded(batch: Batch, padding: int) -> dict[str, Tensor]:
    """A packed batch as transformers takes it"""
    lengths = batch.layout.lengths
    size = (len(lengths), max(lengths))
    ids, segments = torch.full(size, padding), torch.zeros(size, dtype=torch.long)
    mask = torch.zeros(size, dtype=torch.long)
    for row, (start, length) in enumerate(zip(batch.layout.starts.tolist(), lengths, strict=True)):
        ids[row, :length] = batch.ids[start : start + length]
        segments[row, :length] = batch.segments[start : start + length]
        mask[row, :length] = 1
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": segments}


@pytest.fixture(scope="session")
def minilm() -> Path:
    """The folder of the real MiniLM, fetched once"""
    try:
        return hub.encoder_folder("minilm", progress=False)
    except UserError as error:
        pytest.skip(f"the real MiniLM cannot be had here: {error}")


@pytest.fixture(scope="session")
def mpnet() -> Path:
    """The folder of the real MPNet, where it is in the cache: it is too big to fetch for a test"""
    folder = hub.cache_folder() / "encoders" / "mpnet"
    if not (folder / "model.safetensors").is_file():
        pytest.skip("the real MPNet is not in the cache; fetch it with: teabert encoders get mpnet")
    return folder


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of the papers' data"""
    if not os.environ.get("TEABERT_DATA"):
        pytest.skip("set TEABERT_DATA to the folder of the real data to run this")
    return Path(os.environ["TEABERT_DATA"])
