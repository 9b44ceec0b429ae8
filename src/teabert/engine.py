"""One step of training: batches in, gradients, an optimiser's step out; training.py says which batches and when."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import torch
from torch import Tensor, nn

from teabert.batches import Batch
from teabert.config import Recipe
from teabert.dataset import balanced
from teabert.device import autocast
from teabert.kernels import why_no_kernels
from teabert.linear import Linear
from teabert.losses import find_loss, label_weights, make_loss
from teabert.model import Model
from teabert.optim import build_optimizer
from teabert.sampling import Pairs
from teabert.source import Source
from teabert.surgery import Surgery
from teabert.weighting import make_weighting


@dataclass(frozen=True)
class Loss:
    """What a task's part of a batch cost."""

    task: str
    rows: tuple[int, ...]
    summed: Tensor
    count: int | Tensor
    """how many examples; a tensor where only the batch itself knows"""


class Engine:
    """A model, what it learns from and what moves its weights."""

    def __init__(self, recipe: Recipe, model: Model, source: Source) -> None:
        self.settings, self.tasks, self.model, self.source = recipe.train, recipe.tasks, model, source
        self.functions = {name: make_loss(task.loss_choice) for name, task in self.tasks.items()}
        self.compares = [name for name, task in self.tasks.items() if find_loss(task.loss_choice).compares]
        """tasks whose loss compares the examples of a batch with each other"""
        self.weights = {name: self._weights(name) for name in self.tasks}
        self.weighting = make_weighting(self.settings.weighting, self.tasks).to(model.device)
        factor = (self.weighting.lr or recipe.lr) / recipe.lr
        learned = self.weighting.named_parameters(prefix="weighting")
        self.optimizer = build_optimizer(model.named_parameters(), self.settings, recipe.lr, learned, factor)
        if self.settings.precision == "bf16" and why_no_kernels(model.device) is None:
            self.keep_copies(model.encoder.blocks)
        shared = model.shared_parameters() if self.settings.surgery != "none" else []
        project = self.settings.surgery == "pcgrad"
        self.surgery = Surgery(shared, len(self.tasks), self.settings.seed, project) if shared else None

    def _weights(self, name: str) -> Tensor | None:
        """What each label of a task counts"""
        given = balanced(self.tasks[name], self.source.rows[name])
        return None if given is None else torch.tensor(given, device=self.model.device)

    def keep_copies(self, blocks: nn.Module) -> None:
        """The encoder's matrices in bf16 beside their masters; the optimiser keeps those that learn up to date"""
        from teabert.kernels.adamw import RecordedAdamW

        assert isinstance(self.optimizer, RecordedAdamW), "only this optimiser knows of copies"
        for module in blocks.modules():
            if isinstance(module, Linear):
                module.copies = module.weight.detach().bfloat16(), module.bias.detach().bfloat16()
                self.optimizer.copies |= dict(zip((module.weight, module.bias), module.copies, strict=True))

    def set_modes(self) -> None:
        """Dropout on where something learns; a frozen encoder reads without, unless the recipe wants the papers' way."""
        drops = self.settings.mode == "finetune" or self.settings.encoder_dropout
        if not self.model.training or self.model.encoder.training != drops:
            self.model.train()
            self.model.encoder.train(drops)

    def step(self, group: list[Pairs], number: int, rate: float) -> tuple[list[Loss], dict[str, bool]]:
        """One step over one or more batches, the same as over all their examples at once: what each task's parts cost,
        and whether the gradients of the tasks that met in it clashed, where that is watched"""
        self.set_modes()
        self.set_rate(rate)
        examples = sum(len(pairs) for pairs in group)
        self.optimizer.zero_grad(set_to_none=True)
        clashes: dict[str, bool] = {}
        if self.surgery is None:
            losses = [loss for pairs in group for loss in self.backward(pairs, examples)]
        else:
            losses, clashes = self.backward_by_task(self.surgery, group, examples, number)
        self.move()
        return losses, clashes

    def set_rate(self, rate: float) -> None:
        """The learning rate of the next step"""
        for parameters in self.optimizer.param_groups:
            parameters["lr"] = rate * parameters.get("factor", 1.0)
        on_device = getattr(self.optimizer, "rate", None)  # where steps can be recorded
        if on_device is not None:
            on_device.fill_(rate)

    def clip(self) -> None:
        """Gradients no longer than the recipe wants them"""
        if self.settings.clip is not None:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.clip)

    def move(self) -> None:
        """The optimiser's step"""
        self.clip()
        self.optimizer.step()

    def backward(self, pairs: Pairs, examples: int) -> list[Loss]:
        """The gradients of one batch's part in a step over so many examples."""
        return self.learn(self.source.batch(pairs).to(self.model.device), examples)

    def users(self) -> dict[Tensor, list[str]]:
        """The tasks that a parameter serves; parameters that serve every task are not there"""
        found: dict[Tensor, list[str]] = {}
        found.update((self.model.get_parameter(name), tasks) for name, tasks in self.model.users().items())
        return found | self.weighting.users()

    def learn(self, batch: Batch, examples: int | Tensor) -> list[Loss]:
        """The same for a batch that is there."""
        with autocast(self.settings.precision, self.model.device):
            outputs = self.model(batch)
        losses = list(self.losses(outputs, batch))
        total = self.joint(losses) / examples
        if total.requires_grad:  # not so for a lone task whose head has nothing to learn, with the encoder frozen
            total.backward()
        return losses

    def backward_by_task(
        self, surgery: Surgery, group: list[Pairs], examples: int, number: int
    ) -> tuple[list[Loss], dict[str, bool]]:
        """The same, each task by itself; their gradients then meet in surgery."""
        losses: list[Loss] = []
        present = sorted({int(task) for pairs in group for task, _ in pairs})
        for task in present:
            for pairs in group:
                mine = pairs[pairs[:, 0] == task]
                if len(mine):
                    losses += self.backward(mine, examples)
            surgery.take(task)
        against = (surgery.settle(present, number) < 0).tolist()
        names = [list(self.tasks)[task] for task in present]
        met = combinations(range(len(present)), 2)
        return losses, {f"{names[a]}/{names[b]}": against[a][b] for a, b in met}

    def losses(self, outputs: dict[str, Tensor], batch: Batch) -> Iterator[Loss]:
        """The summed losses of each task's examples"""
        for part in batch.parts:
            each = self.functions[part.task](outputs[part.task].float(), part.labels)
            weighed = each * label_weights(part.labels, self.weights[part.task], self.tasks[part.task].kind == "soft")
            if part.counted is None:
                yield Loss(part.task, part.rows, weighed.sum(), len(part.rows))
            else:
                taken = part.counted > 0
                yield Loss(part.task, part.rows, torch.where(taken, weighed, 0.0).sum(), taken.sum())

    def joint(self, losses: list[Loss]) -> Tensor:
        """What is minimised: the tasks' losses, weighed against each other"""
        return torch.stack([self.weighting(loss.task, loss.summed, loss.count) for loss in losses]).sum()
