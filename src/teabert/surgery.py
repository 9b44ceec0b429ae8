"""Gradients of several tasks in, one gradient out: where two point against each other, PCGrad takes the clash away.

Each task's gradient of the shared parameters is one row of a flat buffer. All that PCGrad needs to know are the rows'
products with each other; its result is a weighted sum of the rows. Yu et al. 2020.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from teabert.sampling import generator


class Surgery:
    """The shared parameters' gradients of every task, and what becomes of them."""

    def __init__(self, shared: Sequence[nn.Parameter], tasks: int, seed: int, project: bool) -> None:
        self.shared, self.seed, self.project = list(shared), seed, project
        self.rows = torch.zeros(tasks, sum(parameter.numel() for parameter in shared), device=shared[0].device)
        self.rows = self.rows.to(shared[0].dtype)
        self.touched = [False] * len(self.shared)

    def take(self, row: int) -> None:
        """Move the gradients of the shared parameters into a task's row"""
        place = 0
        for index, parameter in enumerate(self.shared):
            into = self.rows[row, place : place + parameter.numel()]
            if parameter.grad is None:
                into.zero_()
            else:
                into.copy_(parameter.grad.flatten())
                parameter.grad, self.touched[index] = None, True
            place += parameter.numel()

    def settle(self, present: Sequence[int], step: int) -> Tensor:
        """Give the parameters their joint gradient; returns the tasks' cosines with each other, (tasks, tasks)"""
        rows = self.rows[list(present)] if len(present) < len(self.rows) else self.rows
        products = (rows @ rows.T).double().cpu()
        weights = torch.ones(len(present), dtype=torch.float64)
        if self.project:
            draw = generator(self.seed, "surgery", step)
            orders = [draw.permutation(len(present)).tolist() for _ in present]
            weights = projected(products, orders)
        joint = weights.to(rows) @ rows
        place = 0
        for index, parameter in enumerate(self.shared):
            if self.touched[index]:
                parameter.grad = joint[place : place + parameter.numel()].view_as(parameter)
            place += parameter.numel()
        self.touched = [False] * len(self.shared)
        sizes = products.diagonal().sqrt().clamp(min=1e-30)
        return products / sizes[:, None] / sizes[None, :]


def projected(products: Tensor, orders: Sequence[Sequence[int]]) -> Tensor:
    """How much of each task's gradient is in PCGrad's sum; `orders`: in which order each task meets the others

    products: (tasks, tasks), the gradients' products with each other
    """
    total = torch.zeros(len(products), dtype=products.dtype)
    for task, order in enumerate(orders):
        mine = torch.zeros_like(total)
        mine[task] = 1
        for other in order:
            product = mine @ products[:, other]
            if other != task and product < 0:
                mine[other] -= product / products[other, other]
        total += mine
    return total
