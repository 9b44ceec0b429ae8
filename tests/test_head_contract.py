"""The contract of heads, over READERS and ANSWERS and for heads that tasks share: how rows are batched changes nothing."""

from dataclasses import replace

import pytest
import torch

from conftest import rows_of, spread, tiny_shape
from injected import answers, cast, gradients
from teabert.batches import Layout, collate
from teabert.encoder import Encoder
from teabert.heads import ANSWERS, READERS
from teabert.injections import make_injection
from teabert.model import Model, build_heads
from teabert.tasks import make_task

LABELS = {"labels": ["bad", "so-so", "good"]}
KINDS = dict.fromkeys(("classes", "soft", "ordinal", "multilabel"), LABELS)
KINDS |= {"binary": {"labels": [0, 1]}, "score": {"range": [0, 5]}}
READ = [
    *READERS,
    {"method": "task_attention", "layers": 2, "feed_forward": False},
    {"method": "task_attention", "start": "mean"},
    {"method": "task_attention", "layers": 2, "exchange": True},
]


def task(name, kind, head, apart):
    facts = {"texts": ["one", "two"] if apart else "one", "pair": "apart", "kind": kind, "files": "{split}.csv"}
    return make_task(name, facts | KINDS[kind] | {"head": {"dropout": 0.0} | head}, name)


def every_head():
    """Two tasks with such a head each, beside a plain third"""
    for read in READ:
        for name, answer in ANSWERS.items():
            kinds = answer.kinds if read == "mean" else answer.kinds[:1]
            for kind in kinds:
                head = {"read": read, "answer": name if name != "dot" else {"method": "dot", "width": 8}}
                label = read if isinstance(read, str) else "-".join(map(str, read.values()))
                yield pytest.param([(kind, head, answer.apart)] * 2, id=f"{label}-{name}-{kind}")


PAIRS = {"answer": "concatenated", "share": "pairs"}
SHARED = [
    pytest.param(
        [("binary", PAIRS | {"read": read}, True), ("score", PAIRS | {"read": read, "stretch": stretch}, True)],
        id=f"shared-{read}-{stretch}",
    )
    for read, stretch in (("mean", "raw"), ("first_token", "sigmoid"), ("task_attention", "raw"))
]
every = pytest.mark.parametrize("heads", [*every_head(), *SHARED])


def tasks_of(heads):
    plain = task("plain", "classes", {"answer": "linear"}, False)
    return {"plain": plain} | {f"task{i}": task(f"task{i}", *head) for i, head in enumerate(heads)}


def build(heads, seed=0):
    torch.manual_seed(seed)
    encoder, tasks = Encoder(tiny_shape()), tasks_of(heads)
    model = Model(encoder, make_injection("input", encoder.shape, list(tasks)), *build_heads(tasks, encoder))
    spread(model, seed)
    return model.eval()


def chosen(heads):
    lengths = {name: [[3, 7, 2, 4][i:] for i in range(each.sequences)] for name, each in tasks_of(heads).items()}
    made = {name: rows_of(name, [part[:3] for part in parts], seed) for seed, (name, parts) in enumerate(lengths.items())}
    return [(rows, row) for rows in made.values() for row in range(3)]


def ways(heads):
    rows, names = chosen(heads), list(tasks_of(heads))
    batch = collate(rows, names)
    return {
        "mixed": [batch],
        "shuffled": [collate([rows[i] for i in (4, 0, 8, 2, 6, 1, 7, 3, 5)], names)],
        "padded": [replace(batch, layout=Layout.of(batch.layout.lengths, slack=1e9))],
        "cast": [cast(rows, names)],
        "alone": [collate([pair for pair in rows if pair[0].task == name], names) for name in names],
        "one by one": [collate([pair], names) for pair in rows],
    }


@every
def test_mixed_shuffled_padded_and_single_task_batches_answer_alike(heads):
    model = build(heads)
    with torch.no_grad():
        found = {way: answers(model, batches) for way, batches in ways(heads).items()}
    for way, outputs in found.items():
        assert outputs.keys() == found["mixed"].keys()
        for key, out in outputs.items():
            other = found["mixed"][key]
            assert (out - other).abs().max() <= 1e-5 * max(1, other.abs().max()), f"{way} {key}"


@every
def test_mixed_shuffled_padded_and_single_task_batches_have_the_same_gradients(heads):
    model = build(heads).double()
    found = {way: gradients(model, batches) for way, batches in ways(heads).items()}
    for way, grads in found.items():
        for name, grad in grads.items():
            other = found["mixed"][name]
            assert (grad is None) == (other is None), f"{way} {name}"
            assert grad is None or (grad - other).abs().max() <= 1e-9 * max(1, other.abs().max()), f"{way} {name}"


@every
def test_gradients_reach_only_the_heads_of_the_tasks_in_the_batch(heads):
    model = build(heads)
    grads = gradients(model, ways(heads)["alone"][1:2])
    used = model.uses["task0"].head
    for name, grad in grads.items():
        if name.startswith("heads"):
            assert (grad is not None) == name.startswith(f"heads.{used}."), name


@every
def test_what_is_saved_and_loaded_answers_alike(heads):
    first, second = build(heads, 0), build(heads, 5)
    second.load_state_dict({key: value.clone() for key, value in first.state_dict().items()})
    found = answers(second, ways(heads)["mixed"])
    assert all(torch.equal(out, found[key]) for key, out in answers(first, ways(heads)["mixed"]).items())


@every
def test_a_head_trains_with_its_dropout_and_a_seed_decides_it(heads):
    model = build(heads).train()
    found = []
    for _ in range(2):
        torch.manual_seed(3)
        found.append(answers(model, ways(heads)["mixed"]))
    assert all(torch.equal(out, found[1][key]) and out.isfinite().all() for key, out in found[0].items())
