"""What a small task file buys: the encoder stays as it is, only injections and heads learn. Small enough for a CPU."""

from typing import Any

from teabert.experiments.base import Figure, Row, Table
from teabert.experiments.sharing import METHODS, SAMPLING, TRAIN

TASKS = ("sst", "sts", "more-mrpc", "more-sick-entailment")
RECIPE: dict[str, Any] = {
    "tasks": {task: {"pair": "together", "head": {"read": "mean"}} for task in TASKS},
    "sampling": SAMPLING,
    "train": TRAIN | {"mode": "frozen", "lr": 1e-3},
}
CHOSEN = ("input", "attention", "attention-qv", "projected", "gate", "lora", "adapter", "prefix", "pal")

FROZEN_METHODS = Table(
    "frozen-methods",
    "What a small task file buys: every injection on an encoder that stays as it is",
    (
        Row("none", RECIPE, group="heads alone"),
        *(Row(name, RECIPE, (f"injection={METHODS[name]}",)) for name in CHOSEN),
    ),
    (*TASKS, "mean", "per-task", "seconds"),
    Figure("dots", (*TASKS, "mean")),
    notes=(
        "Pairs are encoded together, read off the mean. The four tasks learn at once, in mixed batches.",
        "parameters a task: of injection and heads; what the tasks share, as the projections of 'projected', is divided"
        " among them.",
    ),
    against="none",
)
