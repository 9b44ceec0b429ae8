import json
import time
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from teabert.errors import UserError
from teabert.sampling import Sampler, SamplingSettings, largest_remainder, planned
from teabert.settings import parse

STRATEGIES = ["blocks", "round_robin", "proportional", "square_root", "annealed", "temperature"]
SIZES = {"sst": 40, "para": 150, "sts": 10}


def chosen(strategy="proportional", mixed=True, **more):
    return SamplingSettings(strategy=strategy, mixed=mixed and strategy != "blocks", **more)


def sampler(sizes=SIZES, seed=0, epochs=3, lengths=None, **more):
    return Sampler(sizes, chosen(**more), seed=seed, epochs=epochs, lengths=lengths)


def pairs(batches):
    return [tuple(pair) for batch in batches for pair in batch.tolist()]


def tasks_of(batches):
    return [sorted(set(batch[:, 0].tolist())) for batch in batches]


sizes_of_tasks = st.dictionaries(st.text(min_size=1, max_size=4), st.integers(1, 40), min_size=1, max_size=4)
any_settings = st.builds(
    chosen,
    strategy=st.sampled_from(STRATEGIES),
    mixed=st.booleans(),
    batch=st.integers(1, 9),
    tokens=st.none() | st.integers(1, 60),
    epoch_examples=st.none() | st.integers(1, 150),
    temperature=st.floats(0.1, 50),
)


def any_sampler(sizes, options, seed=0, epochs=3):
    rng = np.random.default_rng(1)
    lengths = {task: rng.integers(1, 30, size) for task, size in sizes.items()}
    return Sampler(sizes, options, seed=seed, epochs=epochs, lengths=lengths)


@settings(deadline=None, max_examples=80)
@given(sizes_of_tasks, any_settings)
def test_actual_examples_are_within_one_of_the_plan(sizes, options):
    made = any_sampler(sizes, options)
    for epoch in range(3):
        shares = planned(sizes, options, epoch, 3)
        found = Counter(task for task, _ in pairs(made.epoch(epoch)))
        assert sum(found.values()) == (options.epoch_examples or sum(sizes.values()))
        assert sum(shares.values()) == pytest.approx(sum(found.values()))
        for index, task in enumerate(sizes):
            assert abs(found[index] - shares[task]) < 1
            assert made.log(epoch)[task] == {"planned": shares[task], "actual": found[index]}


@settings(deadline=None, max_examples=80)
@given(sizes_of_tasks, any_settings, st.integers(0, 60), st.integers(0, 2**70))
def test_resuming_equals_never_stopping(sizes, options, stop, seed):
    whole, first, second = (any_sampler(sizes, options, seed) for _ in range(3))
    expected = [batch.tolist() for _ in range(3) for batch in whole]
    assert len(expected) == whole.total_batches()
    found = []
    while len(found) < min(stop, len(expected)):
        for batch in first:
            found.append(batch.tolist())
            if len(found) == stop:
                break
    second.restore(json.loads(json.dumps(first.state())))
    found += [batch.tolist() for _ in range(4) for batch in second]
    assert found == expected
    assert second.state()["epoch"] == 3


@settings(deadline=None, max_examples=80)
@given(sizes_of_tasks, any_settings)
def test_every_row_comes_once_before_any_comes_twice(sizes, options):
    made = any_sampler(sizes, options)
    times = [np.zeros(size, dtype=int) for size in sizes.values()]
    for _ in range(3):
        for task, row in pairs(made):
            times[task][row] += 1
        assert all(np.ptp(each) <= 1 for each in times)
        assert [int(each.sum()) for each in times] == list(made.state()["consumed"].values())


@pytest.mark.parametrize("strategy", ["proportional", "blocks"])
@pytest.mark.parametrize("mixed", [True, False])
def test_proportional_epochs_hold_every_row_exactly_once(strategy, mixed):
    made = sampler(strategy=strategy, mixed=mixed)
    every = sorted((index, row) for index, size in enumerate(SIZES.values()) for row in range(size))
    first, second = pairs(made.epoch(0)), pairs(made.epoch(1))
    assert sorted(first) == sorted(second) == every
    assert first != second


@settings(deadline=None, max_examples=80)
@given(sizes_of_tasks, any_settings, st.integers(1, 60))
def test_the_token_budget_is_only_exceeded_by_a_single_long_example(sizes, options, budget):
    options = options.model_copy(update={"tokens": budget})
    made = any_sampler(sizes, options)
    lengths = [made.lengths[index] for index in range(len(sizes))]
    batches = made.epoch(0)
    tokens = [sum(int(lengths[task][row]) for task, row in batch.tolist()) for batch in batches]
    assert all(used <= budget or len(batch) == 1 for used, batch in zip(tokens, batches, strict=True))
    if options.mixed:  # greedy: the first example of the next batch would not have fitted
        starts = [int(lengths[batch[0, 0]][batch[0, 1]]) for batch in batches]
        assert all(used + start > budget for used, start in zip(tokens, starts[1:], strict=False))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_unmixed_batches_hold_one_task_and_only_a_task_s_last_is_short(strategy):
    made = sampler(strategy=strategy, mixed=False, batch=16)
    batches = made.epoch(0)
    assert all(len(tasks) == 1 for tasks in tasks_of(batches))
    for index, count in enumerate(made.counts(0).values()):
        found = sorted(len(batch) for batch in batches if batch[0, 0] == index)
        assert found == sorted([16] * (count // 16) + ([count % 16] if count % 16 else []))


def test_blocks_come_in_the_given_order():
    order = [tasks[0] for tasks in tasks_of(sampler(strategy="blocks").epoch(0))]
    assert order == [0] * 3 + [1] * 10 + [2]


def test_round_robin_alternates_by_batch_and_mixed_by_example():
    alone = sampler(strategy="round_robin", mixed=False, epoch_examples=120, batch=10)
    assert tasks_of(alone.epoch(0)) == [[0], [1], [2]] * 4
    mixed = sampler(strategy="round_robin", epoch_examples=120, batch=10)
    assert [task for task, _ in pairs(mixed.epoch(0))] == [0, 1, 2] * 40
    assert [len(batch) for batch in mixed.epoch(0)] == [10] * 12


def test_mixed_batches_hold_tasks_about_in_proportion():
    batches = sampler({"large": 9000, "small": 1000}, batch=100).epoch(0)
    small = [int((batch[:, 0] == 1).sum()) for batch in batches]
    assert np.mean(small) == 10
    assert 2 < np.std(small) < 4  # the hypergeometric distribution's is 2.98


def test_shuffled_batches_are_not_in_blocks_and_every_epoch_has_its_own_order():
    made = sampler(strategy="proportional", mixed=False, batch=5)
    first, second = ([tasks[0] for tasks in tasks_of(made.epoch(epoch))] for epoch in (0, 1))
    assert first != sorted(first)
    assert first != second
    assert sorted(first) == sorted(second)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_seed_decides(strategy):
    same, again, other = (sampler(strategy=strategy, seed=seed).epoch(1) for seed in (3, 3, 4))
    assert pairs(same) == pairs(again)
    assert pairs(same) != pairs(other)


def test_tasks_of_the_same_size_are_not_shuffled_alike():
    batches = sampler({"a": 50, "b": 50}, strategy="blocks", batch=50).epoch(0)
    assert batches[0][:, 1].tolist() != batches[1][:, 1].tolist()


def test_another_task_leaves_a_task_s_rows_in_their_order():
    alone = sampler({"sst": 40}, strategy="blocks").epoch(0)
    beside = sampler(SIZES, strategy="blocks").epoch(0)
    assert pairs(beside)[:40] == pairs(alone)


def test_annealing_goes_from_proportional_to_the_power_one_fifth():
    sizes = {"cola": 6680, "mrpc": 2865, "mnli": 306798}  # as in EmBERT's code
    for epoch, power in ((0, 1.0), (12, 0.6), (24, 0.2)):
        shares = planned(sizes, chosen("annealed"), epoch, 25)
        for task in sizes:
            assert shares[task] / shares["mnli"] == pytest.approx((sizes[task] / 306798) ** power)
    assert planned(sizes, chosen("annealed"), 0, 1) == pytest.approx(sizes)


def test_temperature_runs_from_proportional_to_equal():
    plan = {
        temperature: planned(SIZES, chosen("temperature", temperature=temperature), 0, 1) for temperature in (1, 2, 1e9)
    }
    assert plan[1] == planned(SIZES, chosen("proportional"), 0, 1) == SIZES
    assert plan[2] == pytest.approx(planned(SIZES, chosen("square_root"), 0, 1))
    assert plan[1e9] == pytest.approx(planned(SIZES, chosen("round_robin"), 0, 1))
    assert plan[2]["para"] / plan[2]["sst"] == pytest.approx((150 / 40) ** 0.5)


@given(st.dictionaries(st.text(max_size=3), st.integers(0, 99), min_size=1), st.integers(1, 50))
def test_largest_remainder_keeps_the_sum_and_favours_large_fractions(weights, total):
    whole = sum(weights.values()) or 1
    shares = {task: total * weight / whole for task, weight in weights.items()}
    counts = largest_remainder(shares)
    assert sum(counts.values()) == round(sum(shares.values()))
    up = [shares[task] % 1 for task in shares if counts[task] > shares[task]]
    down = [shares[task] % 1 for task in shares if counts[task] < shares[task]]
    assert not up or not down or min(up) >= max(down) - 1e-9


def test_ties_go_to_the_first_task():
    assert largest_remainder({"a": 1.5, "b": 1.5}) == {"a": 2, "b": 1}


def test_blocks_cannot_be_mixed():
    with pytest.raises(UserError, match=r"no batch can mix tasks\. Set mixed: false"):
        parse(SamplingSettings, {"strategy": "blocks", "mixed": True}, "exp.yaml")
    assert not parse(SamplingSettings, {"strategy": "blocks", "mixed": False}, "exp.yaml").mixed


def test_empty_tasks_are_refused():
    with pytest.raises(UserError, match="Task 'sts' has no rows"):
        sampler({"sst": 3, "sts": 0})
    with pytest.raises(UserError, match="no task is given"):
        sampler({})


@pytest.mark.parametrize(
    "change",
    [{"epoch": 9}, {"batch": 99}, {"batch": 3}, {"epoch": None}, {"consumed": {"sst": 1}}, {"batch": -1}, {"seed": 1}],
)
def test_a_place_that_cannot_be_reached_is_refused_and_the_sampler_stays(change):
    made = sampler()
    next(iter(made))
    before = made.state()
    with pytest.raises(UserError, match="cannot be reached"):
        made.restore({**before, **change})
    assert made.state() == before


def test_a_batch_counts_as_given_out_while_it_is_used():
    made = sampler(batch=16)
    for number, batch in enumerate(made, start=1):
        assert made.state()["batch"] == number
        assert sum(made.state()["consumed"].values()) == 16 * (number - 1) + len(batch)
    assert made.state() == {"epoch": 1, "batch": 0, "consumed": SIZES}


@pytest.mark.parametrize("mixed", [True, False])
@pytest.mark.parametrize("tokens", [None, 1024])
def test_three_hundred_thousand_rows_take_less_than_a_second(mixed, tokens):
    sizes = {"mnli": 200_000, "qqp": 90_000, "rte": 10_000}
    lengths = {task: np.full(size, 20) for task, size in sizes.items()}
    made = sampler(sizes, strategy="annealed", mixed=mixed, tokens=tokens, lengths=lengths)
    start = time.process_time()
    assert sum(len(batch) for batch in made.epoch(1)) == 300_000
    assert time.process_time() - start < 1
