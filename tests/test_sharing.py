"""Texts that several tasks have in common are read once, as far up as no task is told apart."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from conftest import rows_of
from injected import TASKS, answers, build, every, gradients
from teabert.batches import collate

LENGTHS = [5, 3, 5, 9]


def rows(second=2):
    """The same four texts under every task; `near` reads them as joined pairs, so with other segments than `mood`"""
    [ids] = rows_of("mood", LENGTHS).sequences
    labels, names = np.zeros(4, np.float32), tuple("abcd")
    made = rows_of("mood", LENGTHS)
    return {
        "mood": made,
        "same": replace(made, task="same", sequences=(ids, ids[::-1])),
        "near": replace(made, task="near", second_text=[second] * 4, labels=labels, names=names),
    }


def chosen(second=2):
    return [(mine, row) for mine in rows(second).values() for row in range(4)]


def read_at(model, batch):
    """How many tokens each layer reads"""
    seen = []
    hooks = [
        block.register_forward_pre_hook(lambda _, given: seen.append(len(given[0].input))) for block in model.encoder.blocks
    ]
    with torch.no_grad():
        model(batch)
    for hook in hooks:
        hook.remove()
    return seen


@every
def test_shared_texts_have_the_same_answers_and_gradients_as_texts_read_apart(choice):
    model = build(choice).double()
    apart, shared = collate(chosen(), TASKS), collate(chosen(), TASKS, share=True)
    assert shared.shared is not None
    found, expected = answers(model, [shared]), answers(model, [apart])
    assert found.keys() == expected.keys()
    assert all((out - expected[key]).abs().max() <= 1e-9 for key, out in found.items())
    mine, theirs = gradients(model, [shared]), gradients(model, [apart])
    for name, grad in mine.items():
        assert (grad is None) == (theirs[name] is None), name
        assert grad is None or (grad - theirs[name]).abs().max() <= 1e-9 * max(1, grad.abs().max()), name


@pytest.mark.parametrize(
    ("choice", "first"),
    [
        ("none", 2),
        ("input", -1),
        ("attention", 0),
        ({"method": "attention", "layers": 1}, 1),
        (["gate", {"method": "lora", "layers": 1}], 0),
        ([{"method": "gate", "layers": 1}, {"method": "lora", "layers": 1}], 1),
        (["input", {"method": "lora", "layers": 1}], -1),
    ],
    ids=str,
)
def test_each_layer_below_the_first_that_tells_tasks_apart_reads_each_text_once(choice, first):
    model, batch = build(choice), collate(chosen(), TASKS, share=True)
    texts, joined = sum(LENGTHS), sum(LENGTHS)
    once, everything = texts + joined, 4 * texts  # mood and the two sides of `same` have their texts in common
    assert model.injection.first == first
    assert read_at(model, batch) == [once if layer < first else everything for layer in range(2)]
    assert read_at(model, collate(chosen(), TASKS)) == [everything] * 2


def test_a_joined_pair_whose_second_text_never_begins_is_the_same_as_a_lone_text():
    assert len(collate(chosen(second=2), TASKS, share=True).shared.layout.lengths) == 8
    assert len(collate(chosen(second=100), TASKS, share=True).shared.layout.lengths) == 4


def test_texts_that_all_differ_share_nothing():
    made = rows_of("mood", [3, 4, 5])
    assert collate([(made, row) for row in range(3)], TASKS, share=True).shared is None


@given(st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=4), min_size=1, max_size=8), st.integers(0, 99))
def test_every_token_finds_its_own_text(texts, seed):
    made = replace(
        rows_of("mood", [len(text) for text in texts], seed), sequences=([np.array(text, np.int32) for text in texts],)
    )
    batch = collate([(made, row) for row in range(len(texts))], TASKS, share=True)
    different = {tuple(text) for text in texts}
    if len(different) == len(texts):
        assert batch.shared is None
        return
    assert len(batch.shared.layout.lengths) == len(different)
    assert torch.equal(batch.shared.ids[batch.shared.token], batch.ids)
    assert torch.equal(batch.shared.segments[batch.shared.token], batch.segments)
    assert torch.equal(batch.shared.layout.place_of_token[batch.shared.token], batch.layout.place_of_token)
    merged = batch.merged()
    part, once = batch.parts[0], merged.parts[0]
    for row in range(len(texts)):
        spans = [each.layout.starts[where.first[row]] for each, where in ((batch, part), (merged, once))]
        size = len(texts[part.rows[row]])
        assert batch.ids[spans[0] : spans[0] + size].tolist() == merged.ids[spans[1] : spans[1] + size].tolist()
