"""WHAT is learned: one short file per task family, and TASKS, the one list of built-in tasks."""

from collections.abc import Mapping
from typing import Any

from teabert.errors import UserError, unknown
from teabert.settings import parse
from teabert.tasks.base import SPLITS, Task
from teabert.tasks.cleaned import CLEANED
from teabert.tasks.course import CFIMDB, QUORA, SST, STS
from teabert.tasks.public import PUBLIC

TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        SST,
        QUORA,
        STS,
        CFIMDB,
        *CLEANED,
        *(public.task for public in PUBLIC.values()),
    )
}


def make_task(name: str, given: Mapping[str, Any] | None, where: str) -> Task:
    """A built-in task with the given differences, or a whole task of the user's own."""
    given = dict(given or {})
    stated = given.pop("name", name)
    if stated != name:
        raise UserError(f"{where}: the task is listed as '{name}' but names itself '{stated}'.")
    if name in TASKS:
        known = TASKS[name].model_dump(exclude_unset=True)
        head = {**known.get("head", {}), **given.pop("head", {})} if isinstance(given.get("head", {}), dict) else None
        return parse(Task, known | given | ({"head": head} if head else {}), where)
    if "texts" not in given or "files" not in given:
        advice = "Or define it in the recipe with texts, label, kind, labels (or range) and files."
        raise unknown("task", name, TASKS, advice)
    task = parse(Task, {"name": name} | given, where)
    return task.model_copy(update={"shares_rows_with": shared_rows(task)}) if not task.shares_rows_with else task


def shared_rows(task: Task) -> tuple[str, ...]:
    """What a public release shares rows with, if this task reads one from the hub by name."""
    places = [task.files] if isinstance(task.files, str) else list(task.files.values())
    for public in PUBLIC.values():
        config = public.release.files["train"].split("/")[0]
        names = {
            f"hub:{public.release.repo}",
            f"hub:{public.release.repo}:{config}",
            f"hub:{public.release.repo}:{public.task.name}",
        }
        if public.task.shares_rows_with and names & set(places):
            return public.task.shares_rows_with
    return ()


__all__ = ["SPLITS", "TASKS", "Task", "make_task"]
