from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import plain, rows_of, spread, tiny_model, tiny_rows, tiny_shape
from teabert.batches import Layout, by_length, collate
from teabert.encoder import Encoder

LENGTHS = st.lists(st.integers(1, 20), min_size=1, max_size=8)
SLACKS = st.one_of(st.just(1.0), st.floats(1, 3), st.just(1e9))  # no padding at all ... one padded block
COUNTS = st.fixed_dictionaries({}, optional={name: st.integers(1, 4) for name in ("mood", "same", "near")}).filter(bool)
TASKS = ["mood", "same", "near"]


@given(st.lists(st.integers(0, 20), max_size=12), SLACKS)
def test_a_layout_says_where_every_token_lies(lengths, slack):
    layout = Layout.of(lengths, slack)
    expected = [(row, place) for row, length in enumerate(lengths) for place in range(length)]
    assert list(zip(layout.sequence_of_token.tolist(), layout.place_of_token.tolist(), strict=True)) == expected
    assert layout.lengths == tuple(lengths)
    assert layout.starts.tolist() == [sum(lengths[:row]) for row in range(len(lengths))]


@given(LENGTHS, SLACKS)
def test_groups_cover_the_sequences_in_order_and_keep_to_the_slack(lengths, slack):
    row = token = 0
    for group in Layout.of(lengths, slack).groups:
        mine = lengths[row : row + group.sequences]
        assert group.tokens == slice(token, token + sum(mine))
        assert group.longest == max(mine)
        assert group.sequences == 1 or group.sequences * group.longest <= slack * sum(mine) + 1e-9
        if len(set(mine)) == 1:
            assert group.places is group.real is None
        else:
            assert group.real.flatten(1).sum(1).tolist() == mine
            grid = [place * group.longest + token for place, n in enumerate(mine) for token in range(n)]
            assert group.places.tolist() == grid
        row, token = row + len(mine), token + sum(mine)
    assert (row, token) == (len(lengths), sum(lengths))


def test_a_layout_of_nothing_is_empty():
    layout = Layout.of([])
    assert (layout.lengths, layout.groups) == ((), ())
    assert layout.starts.numel() == layout.sequence_of_token.numel() == layout.place_of_token.numel() == 0


def test_a_batch_moves_whole_to_another_device():
    rows = tiny_rows({"mood": 3, "same": 2})
    batch = collate([(rows["mood"], 0), (rows["mood"], 1), (rows["same"], 1)], TASKS)
    batch = replace(batch, pooled=torch.ones(4, 32)).to(torch.device("meta"))
    layout = batch.layout
    held = [batch.ids, batch.segments, batch.task_of_sequence, batch.pooled]
    held += [layout.starts, layout.sequence_of_token, layout.place_of_token]
    held += [tensor for part in batch.parts for tensor in (part.first, part.second, part.labels) if tensor is not None]
    held += [tensor for group in layout.groups for tensor in (group.places, group.real) if tensor is not None]
    assert {tensor.device.type for tensor in held} == {"meta"}


@given(COUNTS, st.integers(0, 1000), st.randoms(use_true_random=False))
def test_a_batch_holds_exactly_the_rows_chosen(counts, seed, random):
    rows = tiny_rows(counts, seed)
    chosen = [(rows[name], row) for name, count in counts.items() for row in range(count)]
    random.shuffle(chosen)
    chosen = chosen[: random.randint(1, len(chosen))]
    batch = collate(chosen, TASKS)
    assert list(batch.layout.lengths) == sorted(batch.layout.lengths), "shortest first"
    assert batch.examples == len(chosen)
    assert len(batch.ids) == sum(batch.layout.lengths)
    sequences, segments = batch.ids.split(batch.layout.lengths), batch.segments.split(batch.layout.lengths)
    found = []
    for part in batch.parts:
        mine = rows[part.task]
        assert part.labels.tolist() == [mine.labels[row] for row in part.rows]
        for place, row in enumerate(part.rows):
            found.append((part.task, row))
            where = [int(part.first[place])] + ([] if part.second is None else [int(part.second[place])])
            assert len(where) == len(mine.sequences)
            for sequence, texts in zip(where, mine.sequences, strict=True):
                assert sequences[sequence].tolist() == texts[row].tolist()
                assert TASKS[batch.task_of_sequence[sequence]] == part.task
                begins = mine.second_text[row] if mine.second_text else len(texts[row])
                assert segments[sequence].tolist() == [int(token >= begins) for token in range(len(texts[row]))]
    assert sorted(found) == sorted((mine.task, row) for mine, row in chosen)


@settings(max_examples=30)
@given(LENGTHS, SLACKS, st.integers(0, 1000))
def test_packed_equals_each_sequence_alone_forward(lengths, slack, seed):
    encoder = Encoder(tiny_shape()).eval()
    spread(encoder, seed)
    batch = collate([(rows := rows_of("task", lengths, seed), row) for row in range(len(lengths))], ["task"])
    batch = replace(batch, layout=Layout.of(batch.layout.lengths, slack))
    states = encoder(batch, plain()).split(batch.layout.lengths)
    for row, place in enumerate(batch.parts[0].first.tolist()):
        alone = encoder(collate([(rows, row)], ["task"]), plain())
        assert (alone - states[place]).abs().max() <= 1e-5


@settings(max_examples=20)
@given(LENGTHS, SLACKS, st.integers(0, 1000), st.sampled_from(["bert", "mpnet"]))
def test_packed_equals_padded_forward_and_gradient_in_any_order(lengths, slack, seed, family):
    """An unsorted pack at any slack against one block padded to the longest; mpnet has a bias besides the mask."""
    facts = {"relative_buckets": 32, "first_position": 2} if family == "mpnet" else {}
    encoder = Encoder(tiny_shape(**facts)).double().eval()
    spread(encoder, seed)
    batch = collate([(rows_of("task", sorted(lengths), seed), row) for row in range(len(lengths))], ["task"])
    pieces = batch.ids.split(sorted(lengths))
    order = np.random.default_rng(seed).permutation(len(lengths)).tolist()
    sizes = [len(pieces[row]) for row in order]
    ids = torch.cat([pieces[row] for row in order])
    direction = torch.randn(len(ids), 32, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    results = []
    for layout in (Layout.of(sizes, slack), Layout.of(sizes, 1e9)):
        encoder.zero_grad()
        states = encoder(replace(batch, ids=ids, layout=layout), plain())
        (states * direction).sum().backward()
        gradients = [parameter.grad.clone() for parameter in encoder.parameters() if parameter.grad is not None]
        results.append([states.detach(), *gradients])
    assert len(results[0]) > 20
    for packed, padded in zip(*results, strict=True):
        assert (packed - padded).abs().max() <= 1e-9


def backward(model, batch, directions):
    """Outputs by (task, row); gradients stay in the model"""
    outputs = model(batch)
    total = 0.0
    found = {}
    for part in batch.parts:
        answers = outputs[part.task]
        found |= {(part.task, row): answer.detach() for row, answer in zip(part.rows, answers, strict=True)}
        total = total + sum((answers[i] * directions[part.task, row]).sum() for i, row in enumerate(part.rows))
    total.backward()
    return found


@settings(max_examples=20)
@given(COUNTS, st.integers(0, 1000), st.randoms(use_true_random=False))
def test_mixed_tasks_equal_one_example_at_a_time_forward_and_gradient(counts, seed, random):
    rows = tiny_rows(counts, seed)
    model = tiny_model(seed).double()
    chosen = [(rows[name], row) for name, count in counts.items() for row in range(count)]
    random.shuffle(chosen)
    directions = {(mine.task, row): random.uniform(-1, 1) for mine, row in chosen}
    mixed = backward(model, collate(chosen, TASKS), directions)
    gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    alone = {}
    for each in chosen:
        alone |= backward(model, collate([each], TASKS), directions)
    summed = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    assert mixed.keys() == alone.keys()
    assert all((mixed[key] - alone[key]).abs().max() <= 1e-9 for key in mixed)
    assert gradients.keys() == summed.keys()
    assert all((gradients[name] - summed[name]).abs().max() <= 1e-9 for name in summed)


@given(LENGTHS, LENGTHS, st.integers(1, 60))
def test_batches_by_length_cover_each_row_once_within_the_budget(first, second, budget):
    count = min(len(first), len(second))
    rows = rows_of("task", [first[:count], second[:count]])
    lengths = rows.lengths()
    assert lengths.tolist() == [a + b for a, b in zip(first, second, strict=False)]
    batches = list(by_length(rows, budget))
    assert sorted(row for batch in batches for row in batch) == list(range(count))
    assert all(len(batch) == 1 or lengths[batch].sum() <= budget for batch in batches)
    in_order = [lengths[row] for batch in batches for row in batch]
    assert in_order == sorted(in_order)


@pytest.mark.parametrize("apart", [False, True])
def test_no_rows_make_no_batches(apart):
    rows = rows_of("task", [[], []] if apart else [[]])
    assert len(rows) == 0
    assert rows.lengths().tolist() == []
    assert list(by_length(rows, 10)) == []
