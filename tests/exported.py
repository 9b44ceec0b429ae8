"""Run folders over tiny models, never trained, of every family: what the exports are tried on."""

import re
from pathlib import Path

import numpy as np
from tokenizers.implementations import BertWordPieceTokenizer

from conftest import COMMON, LONGEST, PIECES, spread, tiny_shape
from teabert.config import parse_recipe
from teabert.encoder import Encoder
from teabert.evaluation import outputs
from teabert.heads import ANSWERS
from teabert.model import assemble
from teabert.predictor import Predictor, load
from teabert.progress import Quiet
from teabert.runs import Run, save_shape
from teabert.tasks.reading import make_example
from teabert.text import TextEncoder

FAMILIES = ("bert", "roberta", "xlm-roberta", "distilbert", "mpnet")
FOLDING = ["input", {"method": "attention", "vectors": "qv"}, "projected", "gate", {"method": "lora", "rank": 2}]
ROBERTA = {"unk_token": "[UNK]", "sep_token": "</s>", "cls_token": "<s>", "pad_token": "<pad>", "mask_token": "<mask>"}
SPECIAL = {"bert": "[PAD] [UNK] [CLS] [SEP] [MASK]", "roberta": "<s> <pad> </s> [UNK] <mask>"}
SINGLE = ["the film was good", "nice plot ! " * 9, "a", "it is not bad , how can you learn 中 unheard"]
PAIRS = [
    ("how do you cook rice ?", "why"),
    ("a film", "the film was very good " * 5),
    ("x", "y"),
    ("nice plot " * 20, "dull"),
]
KINDS = {
    "classes": {"labels": ["bad", "so-so", "good"]},
    "soft": {"labels": ["x", "y"]},
    "ordinal": {"labels": [1, 2, 3, 4]},
    "binary": {"labels": ["no", "yes"]},
    "multilabel": {"labels": ["x", "y", "z"]},
    "score": {"range": [1, 5]},
}


def shape_of(family: str, **changes):
    """A tiny shape with the family's own facts"""
    facts = {
        "bert": {},
        "roberta": {"segments": 1},
        "xlm-roberta": {"segments": 1},
        "distilbert": {"segments": 0, "pooler": False, "activation": "relu"},
        "mpnet": {"segments": 0, "relative_buckets": 32, "epsilon": 1e-5},
    }[family]
    if family in ("roberta", "xlm-roberta", "mpnet"):
        facts = facts | {"padding_id": 1, "first_position": 2, "positions": LONGEST + 2}
    return tiny_shape(family=family, **facts | changes)


def tokenizer_of(family: str):
    """A WordPiece tokenizer with the family's special tokens"""
    kind = "bert" if family in ("bert", "distilbert") else "roberta"
    words = [*SPECIAL[kind].split(), *COMMON.split(), *PIECES.split()]
    named = {} if kind == "bert" else ROBERTA
    return BertWordPieceTokenizer({word: place for place, word in enumerate(words)}, **named)._tokenizer


def make_run(path: Path, tasks: dict, family: str = "bert", injection: object = "none", seed: int = 0, **recipe) -> Run:
    """A run folder as training leaves it, its weights random and far from zero"""
    facts = {name: {"texts": "text", "files": "{split}.tsv"} | task for name, task in tasks.items()}
    made = parse_recipe({"name": "tiny", "tasks": facts, "injection": injection} | recipe)
    shape = shape_of(family)
    model = assemble(made, Encoder(shape))
    spread(model, seed)
    run = Run.create(path, made, {"seed": made.train.seed, "encoder": {"name": made.encoder}})
    save_shape(run, shape)
    TextEncoder(tokenizer_of(family), shape.longest).save(path)
    metrics = {name: dict.fromkeys(task.all_metrics, 0.5) for name, task in made.tasks.items()}
    scores = {"tasks": metrics, "rows": dict.fromkeys(metrics, 7), "collapsed": [], "overall": {"mean": 0.5, "course": 0.5}}
    run.save_best(model.state_dict(), scores)
    run.save_scores(scores)
    return run


def single(kind: str, read: object = "first_token", **head) -> dict:
    """A task of one text"""
    return {"kind": kind, "head": {"read": read, **head}} | KINDS[kind]


def pair(kind: str, read: object = "first_token", apart: bool = False, **head) -> dict:
    """A task of two texts"""
    return single(kind, read, **head) | {"texts": ["one", "two"], "pair": "apart" if apart else "together"}


def task_of(reader: str, answer: str) -> dict:
    """A task that a reader and an answer fit"""
    kinds, apart = ANSWERS[answer].kinds, ANSWERS[answer].apart
    kind = "classes" if "classes" in kinds else kinds[0]
    return pair(kind, reader, apart=True, answer=answer) if apart else single(kind, reader, answer=answer)


def examples(predictor: Predictor, name: str, texts: list) -> list:
    """Texts, or pairs of them, as the task's examples"""
    task = predictor.task(name)
    rows = [dict(zip(task.texts, [text] if isinstance(text, str) else text, strict=True)) for text in texts]
    return [make_example(task, row, labelled=False, name=str(number)) for number, row in enumerate(rows)]


def own_outputs(predictor: Predictor, name: str, texts: list) -> np.ndarray:
    """What the run's own model says of these texts, (texts, outputs)"""
    source = predictor.source({name: examples(predictor, name, texts)}, Quiet())
    return outputs(predictor.model, source, "fp32")[name]


def opened(run: Run) -> Predictor:
    """The run's predictor in full precision"""
    return load(run.path, device="cpu", precision="fp32")


def close(theirs, ours, limit: float = 1e-5) -> bool:
    """Equal up to the limit, relative to what is above 1"""
    theirs, ours = np.asarray(theirs), np.asarray(ours)
    assert theirs.shape == ours.shape
    return bool((np.abs(theirs - ours) <= limit * np.maximum(1, np.abs(ours))).all())


def snippet(folder: Path) -> str:
    """The Python of a folder's README.md, made to run there"""
    code = re.search(r"```python\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)
    assert code, "no code in README.md"
    return code[1].replace("THIS_FOLDER", str(folder))
