"""One shared model against a model for each task: scores, numbers, time and speed, with every way to tell it the task."""

from typing import Any

from teabert.experiments.base import Figure, Row, Table

TRAIN = {
    "epochs": 4,
    "lr": 3e-5,
    "schedule": "linear",
    "warmup": 0.1,
    "weight_decay": 0.01,
    "decay": "weights",
    "clip": 1.0,
}
SAMPLING = {"strategy": "proportional", "batch": 32}
THREE: dict[str, Any] = {"tasks": {"sst": None, "quora": None, "sts": None}, "sampling": SAMPLING, "train": TRAIN}
MORE: dict[str, Any] = THREE | {
    "tasks": THREE["tasks"]
    | {f"more-{name}": None for name in ("cola", "rte", "wnli", "mrpc", "sick-entailment", "sick-relatedness")}
    | {"more-boolq": {"max_tokens": 256}}
}
METHODS = {
    "input": "input",
    "attention": "attention",
    "attention-qv": "{method: attention, vectors: qv}",
    "projected": "projected",
    "activated-residual": "{method: activated, init: residual}",
    "gate": "gate",
    "pal": "pal",
    "lora": "lora",
    "adapter": "adapter",
    "prefix": "prefix",
}
ALONE = ("attention", "lora", "adapter")
"""Methods that also learn on an encoder that stays as it is."""


def _rows(recipe: dict[str, Any]) -> tuple[Row, ...]:
    frozen = ("train.mode=frozen", "train.lr=1e-3")
    return (
        Row("separate", recipe, apart=True, group="a model for each task"),
        Row("shared", recipe, group="one model, not told the task"),
        *(Row(f"shared-{name}", recipe, (f"injection={choice}",), group=name) for name, choice in METHODS.items()),
        *(Row(f"frozen-{name}", recipe, (f"injection={name}", *frozen), group=f"{name}, encoder frozen") for name in ALONE),
    )


COSTS = ("mean", "parameters", "seconds", "memory", "speed")
NOTES = (
    "Pairs are encoded together, read off the mean. speed: dev examples answered in a second, by all models one after"
    " another; memory: the GPU's at its highest in training.",
)
SHARING = Table(
    "sharing",
    "One model for three tasks against a model for each",
    _rows(THREE),
    (*THREE["tasks"], *COSTS),
    Figure("dots", (*THREE["tasks"], "mean")),
    NOTES,
    against="separate",
)
SHARING_MORE = Table(
    "sharing-more",
    "One model for ten tasks against a model for each",
    _rows(MORE),
    (*MORE["tasks"], *COSTS),
    Figure("dots", (*MORE["tasks"], "mean")),
    NOTES,
    against="separate",
)
