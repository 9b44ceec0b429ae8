"""A batch in a mold says, and teaches, what the same rows say as a packed batch; the contracts of injections and heads do
the same for every seat taken (`cast`)."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import rows_of, tiny_rows
from injected import TASKS, answers, build, chosen, every, mixed, pack
from teabert.molds import Frame, Mold, wanted_rows

CPU = torch.device("cpu")


def molded(rows, room=9, exact=(), frame=None, readable=512):
    """The rows in a frame, by default a new one; whatever lay in it before must not matter"""
    wanted, by_task = {}, {}
    for task in TASKS:
        for mine, row in rows:
            if mine.task == task:
                wanted.setdefault(task, []).append(row)
                by_task[task] = mine
    mold = Mold.of(wanted, by_task, TASKS, room, exact, readable)
    frame = frame or Frame(mold, CPU)
    assert frame.mold == mold
    frame.ints.random_(0, 3)
    frame.floats.fill_(torch.nan)
    frame.flags.fill_(True)
    frame.fill(wanted, by_task)
    return frame, wanted


def molded_answers(model, rows, **options):
    frame, wanted = molded(rows, **options)
    outputs = model(frame.batch)
    found = {}
    for part in frame.batch.parts:
        assert part.counted.tolist() == [1.0] * len(wanted[part.task]) + [0.0] * (len(part.first) - len(wanted[part.task]))
        found |= {(part.task, row): outputs[part.task][seat] for seat, row in enumerate(wanted[part.task])}
    return found


def gradients(model, found):
    model.zero_grad()
    total = sum((out * torch.arange(1, len(out) + 1) * (1 + row)).sum() for (task, row), out in found.items())
    total.backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


@every
def test_mold_answers_and_teaches_as_the_packed_batch_with_every_injection(choice):
    model = build(choice).double()
    for rows in (mixed(), chosen({"same": 4}), chosen({"mood": 3, "near": 1})):
        packed, cast = answers(model, [pack(rows)]), molded_answers(model, rows)
        assert packed.keys() == cast.keys()
        for key, out in packed.items():
            assert (cast[key] - out).abs().max() <= 1e-9
        theirs, ours = gradients(model, packed), gradients(model, cast)
        for name, gradient in theirs.items():
            assert (gradient is None) == (ours[name] is None), name
            if gradient is not None:
                assert (ours[name] - gradient).abs().max() <= 1e-9, name


@pytest.mark.parametrize("family", ["bert", "mpnet"])
def test_mold_keeps_the_distances_of_every_sequence(family):
    model = build("none", relative_buckets=8 if family == "mpnet" else 0).double()
    for key, out in answers(model, [pack(mixed())]).items():
        assert (molded_answers(model, mixed())[key] - out).abs().max() <= 1e-9


@settings(max_examples=40)
@given(st.integers(0, 6), st.integers(0, 6), st.integers(1, 6), st.integers(0, 99))
def test_one_frame_serves_every_batch_of_its_mold(mood, same, near, seed):
    rows = chosen({"mood": mood, "same": same, "near": near}, seed)
    model = build("attention").double()
    frame, _ = molded(rows, room=18)
    again = chosen({"mood": mood, "same": same, "near": near}, seed)[::-1]
    packed, cast = answers(model, [pack(again)]), molded_answers(model, again, room=18, frame=frame)
    assert all((cast[key] - out).abs().max() <= 1e-9 for key, out in packed.items())


def test_labels_and_the_number_of_examples_are_those_of_the_rows():
    rows = mixed()
    frame, wanted = molded(rows)
    by_task = {mine.task: mine for mine, _ in rows}
    assert frame.examples.item() == len(rows)
    for part in frame.batch.parts:
        expected = by_task[part.task].labels[wanted[part.task]]
        assert np.array_equal(part.labels[: len(expected)].numpy(), expected)


def test_fillers_are_no_longer_than_what_the_encoder_reads():
    rows = rows_of("mood", [33, 2])
    model = build("none", positions=40).double()
    chosen_rows = [(rows, row) for row in range(2)]
    frame, _ = molded(chosen_rows, room=4, readable=40)
    assert frame.batch.layout.place_of_token.max() == 39
    packed, cast = answers(model, [pack(chosen_rows)]), molded_answers(model, chosen_rows, room=4, readable=40)
    assert all((cast[key] - out).abs().max() <= 1e-9 for key, out in packed.items())


def test_batches_that_mix_their_tasks_differently_share_a_mold():
    few, many = {"mood": 2, "same": 5, "near": 2}, {"mood": 4, "same": 2, "near": 3}
    molds = []
    for counts in (few, many):
        rows = tiny_rows(counts)
        molds.append(Mold.of({task: list(range(len(mine))) for task, mine in rows.items()}, rows, TASKS, 9))
    assert molds[0] == molds[1]


def test_seated_tasks_change_no_answer_and_teach_nothing():
    model = build("attention").double()
    rows = tiny_rows({"mood": 3, "same": 2, "near": 2})
    wanted = {"mood": [0, 2], "near": [1]}
    mold = Mold.of(wanted, rows, TASKS, 4, seated=TASKS)
    assert mold == Mold.of({"same": [0], "near": [1, 0]}, rows, TASKS, 4, seated=TASKS)
    frame = Frame(mold, CPU)
    frame.fill(wanted, rows)
    packed = pack([(rows[task], row) for task, mine in wanted.items() for row in mine])
    found, expected = model(frame.batch), answers(model, [packed])
    for task, mine in wanted.items():
        for seat, row in enumerate(mine):
            assert (found[task][seat] - expected[task, row]).abs().max() <= 1e-9
    same = next(part for part in frame.batch.parts if part.task == "same")
    assert not same.counted.any()


def test_a_task_whose_loss_compares_examples_has_no_empty_seat():
    frame, wanted = molded(mixed(), exact=("near",))
    near = next(part for part in frame.batch.parts if part.task == "near")
    assert len(near.first) == len(wanted["near"])


def test_rows_are_wanted_in_the_order_of_the_tasks():
    pairs = np.array([[2, 5], [0, 1], [2, 4], [0, 7]])
    assert wanted_rows(pairs, TASKS) == {"mood": [1, 7], "near": [5, 4]}
