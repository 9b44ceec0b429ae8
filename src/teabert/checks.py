"""What relates several parts of a recipe: refused before any file is read or weight is loaded."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from teabert.injections import check_injection
from teabert.methods import as_mapping
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
        raise ValueError(
            f"{key}: '{task.head.share}' is neither another task nor a name that another task gives. Name one of"
            f" {', '.join(other.name for other in others) or 'several tasks'}, or give the same name to both."
        )
    for other in sharing:
        unlike = [what for what, mine in head_facts(task).items() if mine != head_facts(other)[what]]
        if unlike:
            shown_facts = "; ".join(f"{what}: {head_facts(task)[what]} and {head_facts(other)[what]}" for what in unlike)
            raise ValueError(
                f"{key}: '{task.name}' and '{other.name}' are too unlike to share a head ({shown_facts})."
                " Make these alike, or give each its own head."
            )


def head_facts(task: Task) -> dict[str, Any]:
    """What tasks that share a head must have in common."""
    several = task.outputs > 1  # a single number may mean a yes or no to one task and a score to another
    return {
        "head.read": as_mapping(task.head.read),
        "head.answer": as_mapping(task.head.answer),
        "head.dropout": task.head.dropout,
        "sequences for an example": task.sequences,
        "outputs": task.outputs,
        "kind": task.kind if several else None,
        "labels": task.labels if several else None,
    }
