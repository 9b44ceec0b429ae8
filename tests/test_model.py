from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import tiny_model, tiny_rows, tiny_shape, tiny_tasks
from teabert.batches import collate
from teabert.config import parse_recipe
from teabert.device import autocast
from teabert.encoder import Encoder
from teabert.evaluation import evaluate, outputs
from teabert.losses import make_loss
from teabert.model import Model, assemble
from teabert.origins import Origin, build
from teabert.pretrained import folder_shape
from teabert.source import Source, encode
from teabert.tasks.reading import Example
from teabert.text import TextEncoder

NAMES = ["mood", "same", "near"]
COUNTS = st.fixed_dictionaries({}, optional={name: st.integers(1, 4) for name in NAMES}).filter(bool)


def everything(rows):
    return [(mine, row) for mine in rows.values() for row in range(len(mine))]


def by_row(model, batch):
    """(task, row) -> outputs"""
    found = model(batch)
    return {(p.task, row): out for p in batch.parts for row, out in zip(p.rows, found[p.task], strict=True)}


@settings(max_examples=30)
@given(COUNTS, st.integers(0, 1000), st.randoms(use_true_random=False))
def test_the_order_of_the_rows_in_a_batch_does_not_matter(counts, seed, random):
    model, chosen = tiny_model(seed), everything(tiny_rows(counts, seed))
    before = by_row(model, collate(chosen, NAMES))
    random.shuffle(chosen)
    after = by_row(model, collate(chosen, NAMES))
    assert before.keys() == after.keys()
    assert all((before[key] - after[key]).abs().max() <= 1e-5 for key in before)


def test_outputs_have_the_shapes_of_their_tasks():
    model, rows = tiny_model(), tiny_rows({"mood": 3, "same": 2, "near": 4})
    found = model(collate(everything(rows), NAMES))
    assert {task: tuple(out.shape) for task, out in found.items()} == {"mood": (3, 3), "same": (2, 1), "near": (4, 1)}


@pytest.mark.parametrize("present", [["mood"], ["same"], ["near"], ["mood", "near"]])
def test_gradients_reach_only_the_heads_of_tasks_in_the_batch(present):
    model = tiny_model()
    found = model(collate(everything(tiny_rows(dict.fromkeys(present, 3))), NAMES))
    assert list(found) == present
    sum(out.sum() for out in found.values()).backward()
    for task, head in model.heads.items():
        for name, parameter in head.named_parameters():
            assert (parameter.grad is not None) == (task in present), f"{task}.{name}"
            assert task not in present or parameter.grad.any(), f"{task}.{name}"
    pooled = any(name in present for name in ("near",))
    for name, parameter in model.encoder.named_parameters():
        assert (parameter.grad is not None) == (pooled or not name.startswith("pooler")), name


def train(model, batch, steps, lr) -> Iterator[float]:
    """Plain Adam on one batch; the mean loss of all its examples at each step"""
    tasks = tiny_tasks()
    optimiser = torch.optim.Adam(model.parameters(), lr)
    for _ in range(steps):
        found = model(batch)
        losses = [make_loss(tasks[p.task].loss_choice)(found[p.task], p.labels) for p in batch.parts]
        assert sum(map(len, losses)) == batch.examples
        loss = torch.cat(losses).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        yield loss.item()


def test_eight_examples_of_three_tasks_are_learned_by_heart():
    torch.manual_seed(0)
    tasks = tiny_tasks()
    recipe = SimpleNamespace(injection="none", tasks=tasks)
    model = assemble(recipe, Encoder(tiny_shape(dropout=0.0, attention_dropout=0.0))).train()
    rows = tiny_rows({"mood": 3, "same": 3, "near": 2}, seed=4)
    assert all(len(set(mine.labels.tolist())) > 1 for mine in rows.values()), "nothing to tell apart"
    losses = list(train(model, collate(everything(rows), NAMES), steps=150, lr=3e-3))
    assert losses[0] > 0.5
    assert losses[-1] < 0.01
    scores = evaluate(model, tasks, Source(rows), "fp32")
    assert scores.tasks["mood"]["accuracy"] == scores.tasks["same"]["accuracy"] == 1
    assert scores.tasks["near"]["pearson"] > 0.99
    assert scores.collapsed == ()
    assert scores.rows == {"mood": 3, "same": 3, "near": 2}


@settings(max_examples=15)
@given(COUNTS, st.integers(0, 1000))
def test_evaluation_gives_the_outputs_in_the_order_of_the_rows(counts, seed):
    model, rows = tiny_model(seed), tiny_rows(counts, seed)
    found = outputs(model, Source(rows, NAMES), "fp32")
    for name, mine in rows.items():
        alone = [model(collate([(mine, row)], NAMES))[name][0].tolist() for row in range(len(mine))]
        assert found[name] == pytest.approx(np.array(alone), abs=1e-5)


@settings(max_examples=15)
@given(COUNTS, st.integers(0, 1000), st.randoms(use_true_random=False))
def test_kept_answers_of_a_frozen_encoder_equal_encoding_anew(counts, seed, random):
    model, rows = tiny_model(seed), tiny_rows(counts, seed)
    source = Source(rows, NAMES)
    pairs = [(NAMES.index(mine.task), row) for mine, row in everything(rows)]
    random.shuffle(pairs)
    kept = encode(model, source, "fp32").batch(pairs)
    assert kept.examples == len(pairs)
    fresh, cached = by_row(model, source.batch(pairs)), by_row(model, kept)
    assert fresh.keys() == cached.keys()
    assert all((fresh[key] - cached[key]).abs().max() <= 1e-5 for key in fresh)
    sum(out.sum() for out in cached.values()).backward()
    assert all(parameter.grad is None for parameter in model.encoder.parameters())
    assert any(parameter.grad is not None for parameter in model.heads.parameters())


def test_bf16_stays_near_fp32():
    model, batch = tiny_model(), collate(everything(tiny_rows(dict.fromkeys(NAMES, 4))), NAMES)
    exact = by_row(model, batch)
    with torch.no_grad(), autocast("bf16", torch.device("cpu")):
        rough = by_row(model, batch)
    worst = max(((exact[key] - rough[key]).abs().max() / (1 + exact[key].abs().max())).item() for key in exact)
    assert 0 < worst < 0.1


def test_a_saved_model_gives_the_same_outputs():
    model, batch = tiny_model(1), collate(everything(tiny_rows(dict.fromkeys(NAMES, 2))), NAMES)
    other = tiny_model(2)
    assert any(not torch.equal(by_row(model, batch)[key], out) for key, out in by_row(other, batch).items())
    other.load_state_dict(model.state_dict())
    assert all(torch.equal(by_row(model, batch)[key], out) for key, out in by_row(other, batch).items())


def test_a_model_is_built_from_a_recipe_and_a_folder(folder_of):
    recipe = parse_recipe({"tasks": ["sst", "sts"], "train": {"seed": 3}})
    origin = Origin(folder_of("bert"), folder_shape(folder_of("bert")))
    first, missing = build(recipe, origin)
    again, _ = build(recipe, origin)
    assert isinstance(first, Model)
    assert (first.tasks, missing) == (("sst", "sts"), [])
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))
    other, _ = build(parse_recipe({"tasks": ["sst", "sts"], "train": {"seed": 4}}), origin)
    same = {name: torch.equal(p, other.get_parameter(name)) for name, p in first.named_parameters()}
    assert all(equal for name, equal in same.items() if name.startswith("encoder."))
    assert not any(equal for name, equal in same.items() if name.endswith("answer.linear.weight"))


def test_words_go_in_and_answers_come_out(words):
    """From texts through tokens and batches to outputs; the same text gets the same answer wherever it stands."""
    text, tasks, model = TextEncoder(words, 40), tiny_tasks(), tiny_model()
    texts = {
        "mood": [("the film was good",), ("dull",)],
        "same": [("how can i cook rice?", "why")] * 2,
        "near": [("a", "x y z")],
    }
    rows = {
        name: text.rows(tasks[name], [Example(str(row), each, 0.0) for row, each in enumerate(given)])[0]
        for name, given in texts.items()
    }
    found = by_row(model, collate(everything(rows), NAMES))
    assert (found["same", 0] - found["same", 1]).abs().max() <= 1e-6
    assert (found["mood", 0] - found["mood", 1]).abs().max() > 1e-3
