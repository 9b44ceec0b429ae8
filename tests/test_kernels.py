"""The GPU's kernels, run by Triton's interpreter on a CPU, against torch's own operators in float64."""

import os
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

os.environ["TRITON_INTERPRET"] = "1"  # before Triton is first imported
pytest.importorskip("triton", reason="Triton is not installed: pip install triton")

import triton
import triton.language as tl
from triton.runtime.errors import InterpreterError

from teabert import kernels
from teabert.batches import Layout
from teabert.kernels import Draws, why_no_kernels
from teabert.kernels.adamw import RecordedAdamW
from teabert.kernels.attention import attend_packed
from teabert.kernels.linear import linear
from teabert.kernels.norm import sum_norm
from teabert.optim import CourseAdamW


@triton.jit
def _count(size, found):
    for number in range(0, tl.load(size), 1):
        tl.store(found, number)


def interprets():
    """Whether Triton's interpreter can loop up to a number that it has loaded: old ones cannot with numpy 2.4"""
    found = torch.zeros(1, dtype=torch.int64)
    try:
        _count[(1,)](torch.tensor([3]), found)
    except InterpreterError:
        return False
    return found.item() == 2


pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="Triton runs on Linux only"),
    pytest.mark.skipif(not interprets(), reason="this Triton cannot interpret under this numpy: pip install -U triton"),
]
SEED = torch.tensor([1234567890123])


def near(found, expected, bound=2e-2):
    """Within the noise of bf16"""
    return (found.double() - expected.double()).norm() <= bound * expected.double().norm() + 1e-6


def by_the_book(q, k, v, lengths, bias, keep=None, rate=0.0):
    """Attention one sequence after another; keep: what dropout leaves, by (query token, head, key)"""
    parts, start = [], 0
    for size in lengths:
        mine = [x[start : start + size].transpose(0, 1) for x in (q, k, v)]
        scores = mine[0] @ mine[1].transpose(1, 2) / q.shape[2] ** 0.5
        weights = (scores if bias is None else scores + bias[:, :size, :size]).softmax(-1)
        if keep is not None:
            weights = weights * keep[start : start + size, :, :size].transpose(0, 1) / (1 - rate)
        parts.append((weights @ mine[2]).transpose(0, 1))
        start += size
    return torch.cat(parts)


# attention is tested in fp32: the interpreter multiplies no bf16


def attention_case(lengths, biased, seed=0, heads=2, width=16):
    torch.manual_seed(seed)
    tokens = sum(lengths)
    qkv = torch.randn(tokens, 3 * heads * width).requires_grad_()
    bias = torch.randn(heads, max(lengths), max(lengths)).requires_grad_() if biased else None
    return qkv, bias, torch.randn(tokens, heads, width)


def gradients(function, qkv, bias, weights, heads=2, width=16):
    q, k, v = (x.view(-1, heads, width) for x in qkv.chunk(3, dim=-1))
    out = function(q, k, v)
    found = torch.autograd.grad((out.double() * weights).sum(), [qkv] if bias is None else [qkv, bias])
    return out, found


def test_long_texts_are_attended_in_larger_blocks():
    attends_by_the_book([150, 3], True, 0)


@settings(max_examples=6)
@given(st.lists(st.integers(1, 70), min_size=1, max_size=4), st.booleans(), st.integers(0, 99))
def test_packed_attention_is_attention_one_sequence_at_a_time(lengths, biased, seed):
    attends_by_the_book(lengths, biased, seed)


def attends_by_the_book(lengths, biased, seed):
    qkv, bias, weights = attention_case(lengths, biased, seed)
    layout = Layout.of(lengths)
    draws = Draws(SEED)
    out, found = gradients(lambda q, k, v: attend_packed(q, k, v, layout, bias, 0.0, draws), qkv, bias, weights)
    wide, wide_bias = (
        qkv.detach().double().requires_grad_(),
        None if bias is None else bias.detach().double().requires_grad_(),
    )
    expected, theirs = gradients(lambda q, k, v: by_the_book(q, k, v, lengths, wide_bias), wide, wide_bias, weights)
    assert near(out, expected)
    assert all(near(mine, their) for mine, their in zip(found, theirs, strict=True))


def test_attention_leaves_out_sequences_of_no_tokens():
    qkv, _, weights = attention_case([3, 5], False)
    layout = Layout.of([3, 5])
    object.__setattr__(layout, "bounds", torch.tensor([0, 3, 8, 8, 8]))
    out, _ = gradients(lambda q, k, v: attend_packed(q, k, v, layout, None, 0.0, Draws(SEED)), qkv, None, weights)
    q, k, v = (x.view(-1, 2, 16) for x in qkv.double().chunk(3, dim=-1))
    assert near(out, by_the_book(q, k, v, [3, 5], None))


def kept_by(lengths, rate, place):
    """Which attention weights survive: values that say which key was read, one at a time"""
    tokens, longest = sum(lengths), max(lengths)
    layout = Layout.of(lengths)
    q = torch.zeros(tokens, 2, 16)
    found = torch.zeros(tokens, 2, longest)
    for key in range(longest):
        v = (layout.place_of_token == key).float()[:, None, None].expand(tokens, 2, 16).contiguous()
        draws = Draws(SEED)
        draws.places = place - 1
        found[:, :, key] = attend_packed(q, q, v, layout, None, rate, draws)[:, :, 0].float()
    return found > 0


def test_attention_dropout_is_the_same_forward_and_back_and_leaves_its_share():
    lengths, rate = [40, 17], 0.3
    qkv, bias, weights = attention_case(lengths, True)
    layout, draws = Layout.of(lengths), Draws(SEED)
    keep = kept_by(lengths, rate, 1)
    sizes = layout.sizes[layout.sequence_of_token]
    real = (torch.arange(40)[None, :] < sizes[:, None])[:, None, :].expand_as(keep)
    share = keep[real].float().mean()
    assert abs(share - 0.7) < 4 * (0.21 / real.sum()) ** 0.5
    out, found = gradients(lambda q, k, v: attend_packed(q, k, v, layout, bias, rate, draws), qkv, bias, weights)
    wide, wide_bias = qkv.detach().double().requires_grad_(), bias.detach().double().requires_grad_()
    expected, theirs = gradients(
        lambda q, k, v: by_the_book(q, k, v, lengths, wide_bias, keep.double(), rate), wide, wide_bias, weights
    )
    assert near(out, expected)
    assert all(near(mine, their) for mine, their in zip(found, theirs, strict=True))


def test_every_place_and_seed_drops_something_else():
    here, there = kept_by([20], 0.5, 1), kept_by([20], 0.5, 2)
    assert not torch.equal(here, there)
    assert torch.equal(here, kept_by([20], 0.5, 1))
    assert abs((here == there).float().mean() - 0.5) < 0.1


def norm_case(rows, width, seed=0):
    torch.manual_seed(seed)
    residual = torch.randn(rows, width, requires_grad=True)
    added = torch.randn(rows, width).bfloat16().requires_grad_()
    shift, weight, bias = (torch.randn(width, requires_grad=True) for _ in range(3))
    return residual, added, shift, weight, bias


@settings(max_examples=6)
@given(st.integers(1, 40), st.sampled_from([16, 48, 96]), st.booleans(), st.booleans(), st.integers(0, 99))
def test_sum_norm_is_layer_norm_of_the_sum(rows, width, exact, working, seed):
    exact = exact or not working
    given_, weights = norm_case(rows, width, seed), torch.randn(2, rows, width)
    ours = sum_norm(*given_, 1e-12, 0.0, Draws(SEED))
    assert ours[0].dtype == torch.float32
    assert ours[1].dtype == torch.bfloat16
    wide = [x.detach().double().requires_grad_() for x in given_]
    theirs = F.layer_norm(wide[0] + wide[1] + wide[2], (width,), wide[3], wide[4], 1e-12)
    assert near(ours[0], theirs, 1e-5)
    assert near(ours[1], theirs)
    mine = sum((out.double() * by).sum() for out, by, used in zip(ours, weights, (exact, working), strict=True) if used)
    by = sum(weight for weight, used in zip(weights, (exact, working), strict=True) if used)
    found, expected = torch.autograd.grad(mine, given_), torch.autograd.grad((theirs * by).sum(), wide)
    assert all(near(a, b) for a, b in zip(found, expected, strict=True))


def test_sum_norm_drops_the_same_forward_and_back():
    ones, zeros = torch.ones(64), torch.zeros(64)
    marks = sum_norm(torch.zeros(30, 64), torch.ones(30, 64), None, ones, zeros, 1e-12, 0.4, Draws(SEED))[0] > 0
    assert abs(marks.float().mean() - 0.6) < 4 * (0.24 / marks.numel()) ** 0.5
    residual, added, _, weight, bias = norm_case(30, 64)
    weights = torch.randn(30, 64)
    ours = sum_norm(residual, added, None, weight, bias, 1e-12, 0.4, Draws(SEED))[0]
    found = torch.autograd.grad((ours * weights).sum(), [residual, added])
    wide, other = residual.detach().double().requires_grad_(), added.detach().double().requires_grad_()
    theirs = F.layer_norm(wide + other * marks / 0.6, (64,), weight.double(), bias.double(), 1e-12)
    assert near(ours, theirs, 1e-5)
    expected = torch.autograd.grad((theirs * weights).sum(), [wide, other])
    assert all(near(a, b) for a, b in zip(found, expected, strict=True))


def test_linear_reads_copies_and_teaches_masters():
    torch.manual_seed(0)
    x = torch.randn(9, 16).bfloat16().requires_grad_()
    weight, bias = torch.randn(24, 16, requires_grad=True), torch.randn(24, requires_grad=True)
    copies = weight.detach().bfloat16(), bias.detach().bfloat16()
    out = linear(x, weight, bias, *copies)
    wide = [each.detach().double().requires_grad_() for each in (x, *copies)]
    expected = F.linear(*wide)
    weights = torch.randn(9, 24)
    assert near(out, expected)
    found = torch.autograd.grad((out.double() * weights).sum(), [x, weight, bias])
    assert found[1].dtype == torch.float32
    theirs = torch.autograd.grad((expected * weights).sum(), wide)
    assert all(near(a, b) for a, b in zip(found, theirs, strict=True))


@pytest.mark.parametrize("learns", [(True, True, True, True), (False, False, False, True), (True, True, True, False)])
@pytest.mark.parametrize("count", [1, 3, 20])
@pytest.mark.parametrize("tokens", [9, 1100])
def test_linear_is_shifted_by_each_tokens_row(tokens, count, learns):
    torch.manual_seed(0)
    x = torch.randn(tokens, 16).bfloat16().requires_grad_(learns[0])
    weight, bias = torch.randn(70, 16, requires_grad=learns[1]), torch.randn(70, requires_grad=learns[2])
    rows, of_token = torch.randn(count, 70, requires_grad=learns[3]), torch.randint(max(2, count), (tokens,))
    copies = weight.detach().bfloat16(), bias.detach().bfloat16()
    wide = [each.detach().double() for each in (x, *copies, rows)]
    wide = [each.requires_grad_(learning) for each, learning in zip(wide, learns, strict=True)]
    expected = F.linear(*wide[:3]) + wide[3][of_token % count]  # a lone row is everybody's
    weights = torch.randn(tokens, 70).bfloat16()
    ours, theirs = ([each for each in given if each.requires_grad] for given in ((x, weight, bias, rows), wide))

    def learned():
        out = linear(x, weight, bias, *copies, rows, of_token)
        return out, torch.autograd.grad((out.double() * weights).sum(), ours)

    out, found = learned()
    assert near(out, expected)
    for mine, right in zip(found, torch.autograd.grad((expected * weights).sum(), theirs), strict=True):
        assert near(mine, right)
    assert all(torch.equal(one, other) for one, other in zip(found, learned()[1], strict=True))


@pytest.mark.parametrize("course", [False, True])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_recorded_adamw_steps_as_torch_and_as_the_course(course, decay):
    torch.manual_seed(0)
    theirs = [torch.nn.Parameter(torch.randn(size)) for size in ((100, 50), (7,), (4097,), (3,))]
    ours = [torch.nn.Parameter(each.detach().clone()) for each in theirs]
    facts = {"lr": 1e-2, "betas": (0.9, 0.999), "eps": 1e-6}
    groups = [
        [{"params": given[:2], "weight_decay": decay}, {"params": given[2:], "weight_decay": 0.0}]
        for given in (theirs, ours)
    ]
    expected = (CourseAdamW if course else torch.optim.AdamW)(groups[0], **facts)
    found = RecordedAdamW(groups[1], course=course, **facts)
    copy = found.copies[ours[0]] = torch.zeros(100, 50, dtype=torch.bfloat16)
    for step in range(4):
        for a, b in zip(theirs, ours, strict=True):
            a.grad = torch.randn_like(a)
            b.grad = a.grad.clone()
        if step == 2:  # a task that is not in the batch
            theirs[3].grad = ours[3].grad = None
        if step == 1:  # one that the kernel cannot read as it lies
            ours[0].grad = ours[0].grad.t().contiguous().t()
        expected.step()
        found.step()
    for a, b in zip(theirs, ours, strict=True):
        assert torch.allclose(a, b, rtol=1e-5, atol=2e-6)
        for name in ("step", "exp_avg", "exp_avg_sq"):
            assert torch.allclose(expected.state[a][name], found.state[b][name], rtol=1e-5, atol=1e-7)
    assert near(copy, ours[0])


@pytest.mark.parametrize("course", [True, False])
def test_a_decay_of_a_thousandth_at_bert_s_learning_rate_changes_no_bit(course):
    ends = {}
    for decay in (0.0, 1e-3, 1e-2):
        torch.manual_seed(0)
        parameter = torch.nn.Parameter(torch.randn(5000) * 10 ** torch.linspace(-4, 2, 5000))
        groups = [{"params": [parameter], "weight_decay": decay}]
        optimizer = RecordedAdamW(groups, 1e-5, (0.9, 0.999), 1e-6, course=course)
        for _ in range(5):
            parameter.grad = torch.randn(5000)
            optimizer.step()
        ends[decay] = parameter.detach()
    assert torch.equal(ends[0.0], ends[1e-3])
    assert not torch.equal(ends[0.0], ends[1e-2])


def test_recorded_adamw_leaves_what_is_not_taken_although_it_has_a_gradient():
    ours = [torch.nn.Parameter(torch.ones(5000)) for _ in range(2)]
    optimizer = RecordedAdamW([{"params": ours, "weight_decay": 0.1}], 0.1, (0.9, 0.999), 1e-8, course=False)
    copy = optimizer.copies[ours[1]] = torch.zeros(5000, dtype=torch.bfloat16)
    for parameter in ours:
        parameter.grad = torch.ones(5000)
    plan = optimizer.plan()
    optimizer.write(plan)
    optimizer.launch(plan, torch.tensor([1.0, 0.0]))
    assert ours[0].detach().max() < 1
    assert torch.equal(ours[1].detach(), torch.ones(5000))
    assert not any(kept.any() for kept in optimizer.state[ours[1]].values())
    assert not copy.any()
    assert optimizer.counts.tolist() == [1, 0]


def test_recorded_adamw_goes_on_from_the_state_of_torchs():
    torch.manual_seed(1)
    theirs, ours = (torch.nn.Parameter(torch.ones(5)) for _ in range(2))
    expected = torch.optim.AdamW([theirs], lr=0.1, weight_decay=0.0)
    theirs.grad = torch.randn(5)
    expected.step()
    found = RecordedAdamW([{"params": [ours]}], 0.1, (0.9, 0.999), 1e-8, course=False)
    place = found.state[ours]["exp_avg"].data_ptr()
    with torch.no_grad():
        ours.copy_(theirs)
    found.load_state_dict(expected.state_dict())
    assert found.state[ours]["exp_avg"].data_ptr() == place
    theirs.grad = torch.randn(5)
    ours.grad = theirs.grad.clone()
    expected.step()
    found.step()
    assert torch.allclose(theirs, ours, rtol=1e-5)
    assert np.isclose(found.state_dict()["state"][0]["step"].item(), 2)


@pytest.mark.parametrize(
    ("installed", "capability", "error", "words"),
    [
        (False, (9, 0), None, "Triton is not installed (pip install triton)"),
        (True, (7, 0), None, "older than Triton takes (compute capability 7.0, at least 7.5)"),
        (True, (9, 0), RuntimeError("Failed to find C compiler.\nSee ..."), "(Failed to find C compiler.)"),
        (True, (9, 0), None, None),
    ],
)
def test_what_kernels_lack_is_found_before_they_are_needed(monkeypatch, installed, capability, error, words):
    def probe(x):
        if error is not None:
            raise error

    monkeypatch.setattr(kernels, "has_triton", lambda: installed)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(torch, "zeros", lambda *size, device: None)
    monkeypatch.setattr("teabert.kernels.sums.sum_rows", probe)
    why = why_no_kernels.__wrapped__(torch.device("cuda"))
    assert (why is None) if words is None else words in why
    assert why_no_kernels(torch.device("cpu")) == "there is no GPU"
