"""Parameters that belong to one task each, and how the tokens of a mixed batch get those of their own task.

Every task has its own parameter: one that is not in the batch gets no gradient at all, so that neither momentum nor
weight decay moves it.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from teabert.injections.base import Site

PAPER = 0.02
"""The deviation of BERT's own initialisation, which the papers took over."""


class PerTask(nn.ParameterDict):
    """One parameter (rows, ...) per task; a row is a layer's, or the only one."""

    def __init__(self, tasks: Sequence[str], size: Sequence[int], deviation: float = 0.0) -> None:
        super().__init__()
        for task in tasks:
            self[task] = nn.Parameter(deviation * torch.randn(*size) if deviation else torch.zeros(*size))

    def each(self) -> Iterator[nn.Parameter]:
        """The parameters, in the order of the tasks"""
        return (cast(nn.Parameter, self[task]) for task in self)

    def of(self, task: str, row: int, at: Site) -> Tensor:
        """One task's row"""
        key = (id(self), task)
        if key not in at.kept:
            at.kept[key] = self[task].unbind(0)
        return cast(Tensor, at.kept[key][row])

    def table(self, row: int, at: Site) -> Tensor:
        """That row of all tasks, (tasks, ...); (1, ...) where the batch has one task only"""
        if len(at.names) == 1:
            return self.of(at.names[0], row, at)[None]
        if id(self) not in at.kept:
            tasks = [self[task] if task in at.names else self[task].detach() for task in self]
            at.kept[id(self)] = torch.stack(tasks).unbind(1)
        return cast(Tensor, at.kept[id(self)][row])


def spread(table: Tensor, tasks: Tensor, like: Tensor) -> Tensor:
    """(tasks, width) -> each token's row, or that of all where there is one only, in the precision of `like`"""
    if len(table) > 1:
        # looked up in at least fp32, because the backward sums over all tokens of a task
        table = F.embedding(tasks, table.to(torch.promote_types(table.dtype, torch.float32)))
    return table.to(like.dtype)


def with_rows(x: Tensor, table: Tensor, at: Site) -> Tensor:
    """x + each token's row of the table; x: (tokens, width)"""
    return x + spread(table, at.task_of_token, x)


def by_task(x: Tensor, at: Site, tasks: Sequence[str], function: Callable[[str, Tensor], Tensor]) -> Tensor:
    """Apply a task's own function to the tokens of each task in the batch: x, (tokens, ...) -> (tokens, ...)"""
    if len(at.names) == 1:
        return function(at.names[0], x)
    if by_task not in at.kept:
        at.kept[by_task] = _every_way(at, tasks) if at.layout.fixed else _sorted(at, len(tasks))
    order, back, counts = at.kept[by_task]
    parts = F.embedding(order, x).split(counts)
    done = [function(task, part) for task, part in zip(tasks, parts, strict=True) if len(part)]
    return F.embedding(back, torch.cat(done))


def _every_way(at: Site, tasks: Sequence[str]) -> tuple[Tensor, Tensor, list[int]]:
    """Where shapes are fixed: all tokens for every task in the batch, and the way back to each token's own task."""
    count = at.task_of_token.shape[0]
    own = torch.arange(count, device=at.task_of_token.device)
    met = [place for place, task in enumerate(tasks) if task in at.names]
    rank = sum((at.task_of_token > place).long() for place in met[:-1])  # among the tasks in the batch
    return own.repeat(len(met)), rank * count + own, [count if place in met else 0 for place in range(len(tasks))]


def _sorted(at: Site, tasks: int) -> tuple[Tensor, Tensor, list[int]]:
    """The tokens in the order of their tasks, the way back, and how many tokens each task has."""
    order = at.task_of_token.argsort(stable=True)
    return order, order.argsort(), torch.bincount(at.task_of_token, minlength=tasks).tolist()
