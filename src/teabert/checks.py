"""What relates several parts of a recipe: refused before any file is read or weight is loaded."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from teabert.heads import ANSWERS, READERS
from teabert.injections import check_injection
from teabert.methods import Choice, as_mapping, resolve
from teabert.tasks import Task
from teabert.tasks.extra import lender

if TYPE_CHECKING:
    from teabert.config import Recipe


def check(recipe: "Recipe") -> None:
    """All of it."""
    check_injection(recipe.injection)
    check_weighting(recipe)
    for name, task in recipe.tasks.items():
        check_apart(name, task, recipe, "tasks")
        for other, extra in task.extra.items():
            check_apart(other, lender(task, other, extra), recipe, f"tasks.{name}.extra")
        if task.head.share is not None:
            check_shared_head(task, [other for other in recipe.tasks.values() if other is not task])


def check_weighting(recipe: "Recipe") -> None:
    """Learned weights need losses from zero, surgery needs two tasks."""
    if as_mapping(recipe.train.weighting)["method"] == "uncertainty":
        for name, task in recipe.tasks.items():
            if as_mapping(task.loss_choice)["method"] == "negative_pearson":
                raise ValueError(
                    f"train.weighting: uncertainty needs losses that never fall below zero, but tasks.{name}.loss is"
                    " negative_pearson. Use squared_error there, or weighting: fixed."
                )
    if recipe.train.surgery != "none" and len(recipe.tasks) == 1:
        raise ValueError(
            f"train.surgery: {recipe.train.surgery} compares the gradients of several tasks, but"
            f" '{next(iter(recipe.tasks))}' is the only one. Add a task, or leave it out."
        )


def check_apart(name: str, task: Task, recipe: "Recipe", key: str) -> None:
    """Rows that contain dev and test rows of a task are never trained together with it."""
    if clash := [other for other in task.shares_rows_with if other in recipe.tasks]:
        raise ValueError(
            f"{key}: '{name}' is never trained together with '{', '.join(clash)}': its rows contain dev and test rows"
            f" of {', '.join(clash)}, so the scores would be false. Leave one of them out."
        )


def check_shared_head(task: Task, others: Sequence[Task]) -> None:
    """A head is shared by tasks whose heads are alike in all but how a number becomes a score."""
    key = f"tasks.{task.name}.head.share"
    sharing = [other for other in others if other.head_name == task.head_name]
    if not sharing:
        advice = f"Name one of {', '.join(other.name for other in others)}, or give the same name to both."
        advice = advice if others else f"'{task.name}' is the only task: leave it out."
        raise ValueError(f"{key}: '{task.head.share}' is neither another task nor a name that another task gives. {advice}")
    for other in sharing:
        ours, theirs = head_facts(task), head_facts(other)
        unlike = "; ".join(f"{what}: {mine} and {theirs[what]}" for what, mine in ours.items() if mine != theirs[what])
        if unlike:
            raise ValueError(
                f"{key}: '{task.name}' and '{other.name}' are too unlike to share a head ({unlike})."
                " Make these alike, or give each its own head."
            )


def head_facts(task: Task) -> dict[str, Any]:
    """What tasks that share a head must have in common."""
    several = task.outputs > 1  # a single number may mean a yes or no to one task and a score to another
    return {
        "head.read": complete(READERS, task.head.read),
        "head.answer": complete(ANSWERS, task.head.answer),
        "head.dropout": task.head.dropout,
        "sequences for an example": task.sequences,
        "outputs": task.outputs,
        "kind": task.kind if several else None,
        "labels": task.labels if several else None,
    }


def complete(methods: Mapping[str, Any], choice: Choice) -> Any:
    """A method with all its options, given or not; its name alone where it has none."""
    _, options = resolve(methods, choice, "head")
    name, values = as_mapping(choice)["method"], options.model_dump()
    return {"method": name} | values if values else name
