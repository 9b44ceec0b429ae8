"""Predictors over tiny models, and their run folders, without any training."""

from pathlib import Path

import torch

from conftest import HEADS, TASKS, spread, tiny_shape
from teabert.config import Recipe, parse_recipe
from teabert.encoder import Encoder
from teabert.model import assemble
from teabert.predictor import Predictor
from teabert.runs import Run, save_shape

MORE = {
    "stars": {"texts": "sentence", "kind": "ordinal", "labels": [1, 2, 3, 4], "head": {"answer": "coral"}},
    "tags": {"texts": "sentence", "kind": "multilabel", "labels": ["x", "y", "z"], "head": {"read": "first_token"}},
    "kin": {"texts": ["one", "two"], "kind": "score", "range": [0, 5], "pair": "apart", "head": {"answer": "difference"}},
    "heard": {"texts": ["one", "two"], "kind": "binary", "labels": ["no", "yes"], "pair": "apart"}
    | {"head": {"read": {"method": "task_attention", "layers": 2}, "answer": "concatenated"}},
    "told": {"texts": "sentence", "kind": "classes", "labels": ["a", "b"], "head": {"read": "task_attention"}},
}
"""Beside the three of conftest: every kind, every reader, both ways with pairs."""


def recipe(injection: object = "none", **tasks: dict) -> Recipe:
    """A recipe of tasks that are never trained"""
    known = {name: {"head": HEADS.get(name, {})} | facts for name, facts in (TASKS | MORE).items()} | tasks
    given = {name: {"files": "{split}.csv"} | facts for name, facts in known.items()}
    return parse_recipe({"tasks": given, "injection": injection, "train": {"precision": "fp32"}})


def predictor(text, injection: object = "none", calibration=None, tasks: dict | None = None, **shape: object) -> Predictor:
    """A tiny predictor, weights far from zero"""
    made = recipe(injection, **tasks or {})
    model = assemble(made, Encoder(tiny_shape(**shape)))
    spread(model)
    with torch.no_grad():  # a dot product of numbers so large would be sure of everything
        model.head("same").answer.projection.weight *= 0.05
    return Predictor(model.eval(), text, made.tasks, "fp32", Run(Path("nowhere")), calibration)


def write_run(folder: Path, text, injection: object = "none", tasks: dict | None = None) -> Path:
    """A run folder that was never trained, as training leaves one"""
    made = predictor(text, injection, tasks=tasks)
    run = Run.create(folder, recipe(injection, **tasks or {}), {})
    save_shape(run, made.model.encoder.shape)
    text.save(folder)
    run.save_best(made.model.state_dict(), {})
    return folder
