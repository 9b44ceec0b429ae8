import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from conftest import rows_of, tiny_shape
from teabert.batches import collate
from teabert.config import load_recipe
from teabert.encoder import Encoder
from teabert.heads import ANSWERS, READERS, Head, Reading, stretched
from teabert.methods import resolve
from teabert.model import build_head

COUNTS = st.lists(st.integers(1, 12), min_size=1, max_size=6)
SEEDS = st.integers(0, 10**6)


def vectors(count, seed, width=32):
    return torch.randn(2, count, width, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).unbind()


def answer(choice, outputs=1, width=32):
    method, config = resolve(ANSWERS, choice, "answer")
    return method(config, width, outputs).double()


def reading_of(lengths, seed, apart=False):
    """States of random sequences, and the part of the batch that names them"""
    rows = rows_of("task", [lengths, lengths[::-1]] if apart else lengths, seed)
    batch = collate([(rows, row) for row in range(len(rows))], ["task"])
    encoder = Encoder(tiny_shape()).double()
    states = torch.randn(len(batch.ids), 32, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return Reading(states, batch.layout, encoder), batch.parts[0]


def read(choice, reading, part):
    method, config = resolve(READERS, choice, "read")
    return method(config, tiny_shape(), 1)(reading, part)


def by_hand(choice, reading, sequence):
    start = int(reading.layout.starts[sequence])
    states = reading.states[start : start + reading.layout.lengths[sequence]]
    if choice == "mean":
        return sum(states) / len(states)
    if choice == "first_token":
        return torch.tanh(reading.encoder.pooler.weight @ states[0] + reading.encoder.pooler.bias)
    return states[0]


@settings(max_examples=40)
@given(COUNTS, SEEDS, st.booleans(), st.sampled_from(["mean", "first_token", "bare"]))
def test_readers_equal_their_formulas_sequence_by_sequence(lengths, seed, apart, choice):
    reading, part = reading_of(lengths, seed, apart)
    given = {"method": "first_token", "pooler": False} if choice == "bare" else choice
    first, second = read(given, reading, part)
    assert (second is None) == (not apart)
    for found, places in ((first, part.first), (second, part.second)):
        if found is not None:
            expected = torch.stack([by_hand(choice, reading, place) for place in places.tolist()])
            assert (found - expected).abs().max() <= 1e-12


def test_an_mlp_is_two_layers_on_the_mean_as_large_as_a_bare_attention_layer():
    reading, part = reading_of([3, 4], 1)
    reader, config = resolve(READERS, "mlp", "read")
    mine = reader(config, tiny_shape(), 1).double()
    inner, _, outer = mine.layers
    expected = outer(F.gelu(reading.mean @ inner.weight.T + inner.bias))
    assert (mine(reading, part)[0] - expected[part.first]).abs().max() <= 1e-12
    attention = resolve(READERS, {"method": "task_attention", "bare_last": True}, "read")
    sizes = [
        sum(p.numel() for p in each.parameters() if p.ndim == 2)
        for each in (mine, attention[0](attention[1], tiny_shape(), 1))
    ]
    assert sizes[0] == sizes[1] == 4 * 32**2


def test_the_mean_of_bf16_states_is_summed_in_fp32():
    reading, part = reading_of([400], 0)
    exact = reading.states.bfloat16().double().mean(0)
    [found], _ = read("mean", Reading(reading.states.bfloat16(), reading.layout, reading.encoder), part)
    assert found.dtype == torch.float32
    assert (found.double() - exact).abs().max() <= 1e-6


@pytest.mark.parametrize("choice", ["first_token", {"method": "first_token", "pooler": False}])
def test_without_a_pooler_the_first_token_is_bare(choice):
    reading, part = reading_of([3, 4], 0)
    reading.encoder.pooler = None
    assert torch.equal(read(choice, reading, part)[0], reading.first[part.first])


@given(COUNTS, SEEDS, st.integers(1, 6))
def test_linear_answers_equal_their_formulas(lengths, seed, outputs):
    u, v = vectors(len(lengths), seed)
    joined = {"linear": u, "concatenated": torch.cat([u, v], 1), "difference": torch.cat([u, v, (u - v).abs()], 1)}
    for name, x in joined.items():
        head = answer(name, outputs)
        expected = x @ head.linear.weight.T + head.linear.bias
        assert expected.shape == (len(u), outputs)
        assert (head(u, None if name == "linear" else v) - expected).abs().max() <= 1e-12


@given(SEEDS, st.floats(-10, 10), st.floats(0.1, 10))
def test_a_number_is_stretched_over_the_range_raw_or_after_a_sigmoid(seed, low, size):
    numbers, _ = vectors(5, seed, 1)
    span = (low, low + size)
    squeezed = stretched(100 * numbers, "sigmoid", span)
    assert ((squeezed >= low - 1e-9) & (squeezed <= low + size + 1e-9)).all()
    assert (stretched(numbers, "sigmoid", span) - (low + size / (1 + torch.exp(-numbers)))).abs().max() <= 1e-9
    assert torch.equal(stretched(numbers, "none", span), numbers)
    assert (stretched(numbers, "raw", span) - (low + size * numbers)).abs().max() <= 1e-12
    assert torch.equal(stretched(numbers, "raw", (0, 5)), 5 * numbers), "STS, as the paper writes it"


@given(COUNTS, SEEDS, st.integers(1, 20))
def test_dot_is_the_product_of_one_shared_projection(lengths, seed, width):
    u, v = vectors(len(lengths), seed)
    head = answer({"method": "dot", "width": width})
    assert {name: tuple(p.shape) for name, p in head.named_parameters()} == {
        "projection.weight": (width, 32),
        "projection.bias": (width,),
    }
    weight, bias = head.projection.weight, head.projection.bias
    expected = torch.stack([(weight @ a + bias) @ (weight @ b + bias) for a, b in zip(u, v, strict=True)])
    assert (head(u, v)[:, 0] - expected).abs().max() <= 1e-9
    assert (head(v, u) - head(u, v)).abs().max() <= 1e-9, "a shared projection does not know which text came first"


@given(COUNTS, SEEDS, st.floats(-5, 5), st.floats(0.1, 10))
def test_cosine_is_its_formula_and_stays_in_the_range(lengths, seed, low, size):
    u, v = vectors(len(lengths), seed)
    head, span = answer("cosine"), (low, low + size)
    scores = stretched(head(u, v), head.stretch, span)[:, 0]
    cosine = (u * v).sum(1) / (u.norm(dim=1) * v.norm(dim=1))
    assert (scores - (low + size * cosine.clamp(min=0))).abs().max() <= 1e-9
    assert ((scores >= low) & (scores <= low + size + 1e-9)).all()
    assert (head(u, 3 * u) - 1).abs().max() <= 1e-9, "the same direction gets the highest score"
    assert (head(u, -u)).abs().max() <= 1e-9, "opposite ones get the lowest"
    assert not list(head.parameters())


ANY_KIND = {"classes", "soft", "ordinal", "binary", "multilabel", "score"}


@pytest.mark.parametrize(
    ("name", "kinds", "compares"),
    [
        ("linear", ANY_KIND, False),
        ("coral", {"ordinal"}, False),
        ("concatenated", ANY_KIND, True),
        ("difference", ANY_KIND, True),
        ("dot", {"binary", "score"}, True),
        ("cosine", {"score"}, True),
    ],
)
def test_an_answer_says_which_tasks_it_fits_and_whether_it_compares(name, kinds, compares):
    assert set(ANSWERS[name].kinds) == kinds
    assert ANSWERS[name].apart == compares


@pytest.mark.parametrize("name", ANSWERS)
def test_answers_to_vectors_equal_the_whole_head(name):
    apart = ANSWERS[name].apart
    reading, part = reading_of([3, 1, 4], 5, apart)
    reader, config = resolve(READERS, "mean", "read")
    head = Head(reader(config, tiny_shape(), 1), answer(name), dropout=0.3).eval()
    whole = head(reading, part)
    assert whole.shape == (3, 1)
    assert torch.equal(whole, head.answers(*head.reader(reading, part)))


def test_dropout_lies_between_reader_and_answer():
    u, v = vectors(4, 0)
    head = Head(nn.Identity(), answer("concatenated"), dropout=0.5)
    torch.manual_seed(1)
    dropped = F.dropout(u, 0.5), F.dropout(v, 0.5)
    torch.manual_seed(1)
    assert torch.equal(head.answers(u, v), head.answer(*dropped))
    head.eval()
    assert torch.equal(head.answers(u, v), head.answer(u, v))


def weights(task, width=768):
    """The weights (without biases) of a task's head on an encoder of this width"""
    head = build_head(task, Encoder(tiny_shape(width=width, vocabulary=10, inner_width=8, layers=0)))
    return sum(parameter.numel() for name, parameter in head.named_parameters() if name.endswith("weight"))


def test_heads_of_task_specific_attention_have_the_sizes_of_its_paper():
    tasks = load_recipe("task-attention-baseline").tasks
    found = {name: weights(task) for name, task in tasks.items()}
    assert found == {"sst": 768 * 5, "quora": 768**2, "sts": 768 * 3072}


def test_heads_of_tea_bert_have_the_sizes_of_its_paper():
    tasks = load_recipe("all-baseline").tasks
    assert {name: weights(task) for name, task in tasks.items()} == {"sst": 768 * 5, "quora": 2 * 768, "sts": 0}
