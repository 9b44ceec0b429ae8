"""Models with an injection, and the ways in which the same rows can be batched: what tests of injections have in common."""

from dataclasses import replace

import pytest
import torch

from conftest import spread, tiny_rows, tiny_shape, tiny_tasks
from teabert.batches import Layout, collate
from teabert.encoder import Encoder
from teabert.injections import INJECTIONS, Injection
from teabert.model import Model, build_heads, build_injection
from teabert.molds import Frame, Mold

TASKS = ("mood", "same", "near")
SMALL = {
    "pal": {"width": 12, "attention_heads": 3},
    "lora": {"rank": 2},
    "adapter": {"size": 5},
    "prefix": {"length": 3},
}
METHODS = [{"method": name, **SMALL.get(name, {})} for name in INJECTIONS]
VARIANTS = [
    {"method": "input", "place": "after"},
    {"method": "attention", "vectors": "qv", "layers": 1},
    {"method": "attention", "share_layers": True},
    {"method": "projected", "share_layers": True, "layers": "0-0"},
    {"method": "activated", "share_layers": True, "act": "tanh"},
    {"method": "activated", "init": "residual", "act": "selu"},
    {"method": "gate", "share_layers": True},
    {"method": "lora", "rank": 3, "layers": "1"},
    {"method": "pal", "width": 8, "attention_heads": 2, "layers": "0"},
    {"method": "pal", "width": 12, "attention_heads": 3, "share_layers": True},
    {"method": "lora", "rank": 2, "share_layers": True},
    {"method": "adapter", "size": 5, "share_layers": True},
    {"method": "prefix", "length": 2, "share_layers": True},
    ["input", {"method": "lora", "rank": 2}, "gate", {"method": "prefix", "length": 2}],
    ["attention", {"method": "input", "place": "after"}, {"method": "adapter", "size": 4, "layers": 1}],
]
ALL = METHODS + VARIANTS


def name_of(choice):
    if isinstance(choice, list):
        return "+".join(map(name_of, choice))
    if isinstance(choice, str):
        return choice
    return "-".join([choice["method"], *(f"{key}={value}" for key, value in choice.items() if key != "method")])


every = pytest.mark.parametrize("choice", ALL, ids=name_of)


def build(choice, seed=0, filled=True, **shape):
    """A tiny model with an injection, in eval mode; filled: all its numbers random and far from zero"""
    torch.manual_seed(seed)
    encoder = Encoder(tiny_shape(**shape))
    injection = build_injection(choice, encoder, TASKS)
    model = Model(encoder, injection, *build_heads(tiny_tasks(), encoder))
    spread(model.encoder, seed)
    spread(model.heads, seed + 1)
    if filled:
        spread(model.injection, seed + 2)
    return model.eval()


def chosen(counts, seed=0):
    return [(mine, row) for mine in tiny_rows(counts, seed).values() for row in range(len(mine))]


def mixed(seed=0):
    return chosen({"mood": 3, "same": 2, "near": 4}, seed)


def pack(rows):
    return collate(rows, TASKS)


def cast(rows, tasks):
    """The rows as a batch of fixed shapes, every seat taken"""
    by_task = {mine.task: mine for mine, _ in rows}
    wanted = {task: [row for mine, row in rows if mine.task == task] for task in tasks if task in by_task}
    frame = Frame(Mold.of(wanted, by_task, tasks, len(rows), exact=tasks), torch.device("cpu"))
    frame.fill(wanted, by_task)
    parts = (replace(part, rows=tuple(wanted[part.task])) for part in frame.batch.parts)
    return replace(frame.batch, parts=tuple(parts))


def ways(rows):
    """The same rows as one mixed batch, shuffled, padded to the longest, of fixed shapes, and one task at a time"""
    batch = pack(rows)
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(1)).tolist()
    return {
        "mixed": [batch],
        "shuffled": [pack([rows[i] for i in order])],
        "padded": [replace(batch, layout=Layout.of(batch.layout.lengths, slack=1e9))],
        "cast": [cast(rows, TASKS)],
        "alone": [pack([pair for pair in rows if pair[0].task == task]) for task in {pair[0].task: 0 for pair in rows}],
        "one by one": [pack([pair]) for pair in rows],
    }


def answers(model, batches):
    """(task, row) -> outputs"""
    found = {}
    for batch in batches:
        outputs = model(batch)
        found |= {(p.task, row): out for p in batch.parts for row, out in zip(p.rows, outputs[p.task], strict=True)}
    return found


def gradients(model, batches):
    """Of a sum that weighs every output differently"""
    model.zero_grad()
    for (task, row), out in answers(model, batches).items():
        weights = torch.arange(1, len(out) + 1) * (1 + row) * (1 if task == "mood" else -0.7)
        (out * weights).sum().backward(retain_graph=True)
    return {name: p.grad for name, p in model.named_parameters()}


class Watch(Injection):
    """Keeps the first layer's context."""

    def context(self, x, at):
        if at.layer == 0:
            self.seen = x.flatten(1)
        return x
