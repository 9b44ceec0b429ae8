"""The encoder's linear layer: torch's, whatever the processor prefers."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from teabert.linear import Linear


def layer(seed=0, inputs=24, outputs=40, bias=True):
    torch.manual_seed(seed)
    return Linear(inputs, outputs, bias=bias)


@settings(max_examples=40)
@given(st.integers(1, 70), st.integers(1, 33), st.integers(1, 50), st.booleans(), st.sampled_from(["inference", "no_grad"]))
def test_answers_are_torchs(tokens, inputs, outputs, bias, mode):
    mine = layer(tokens, inputs, outputs, bias)
    x = torch.randn(tokens, inputs)
    with torch.inference_mode() if mode == "inference" else torch.no_grad():
        found = mine(x)
    assert found.shape == (tokens, outputs)
    assert (found - F.linear(x.double(), mine.weight.double(), mine.bias.double() if bias else None)).abs().max() <= 1e-5


@settings(max_examples=40)
@given(st.integers(1, 70), st.integers(1, 33), st.sampled_from(["none", "tanh", "relu"]), st.booleans())
def test_what_is_activated_at_once_is_what_is_activated_after(tokens, inputs, kind, learns):
    mine = layer(tokens, inputs)
    activation = torch.nn.ReLU() if kind == "relu" else torch.nn.GELU(approximate=kind)
    x = torch.randn(tokens, inputs)
    with torch.set_grad_enabled(learns):
        found = mine.activated(x, activation)
    expected = activation(F.linear(x.double(), mine.weight.double(), mine.bias.double()))
    assert (found - expected).abs().max() <= 1e-5
    assert found.requires_grad == learns


@pytest.mark.parametrize("double", [False, True])
def test_learning_and_double_precision_are_plain_torch(double):
    mine, x = layer(), torch.randn(5, 24, requires_grad=True)
    mine, x = (mine.double(), x.double()) if double else (mine, x)
    with torch.set_grad_enabled(not double):
        found = mine(x)
    assert torch.equal(found, F.linear(x, mine.weight, mine.bias))
    assert found.requires_grad == (not double)
    assert mine._laid_out is None


def test_changed_weights_answer_at_once():
    mine, x = layer(), torch.randn(5, 24)
    with torch.no_grad():
        mine(x)
        mine.weight.mul_(2)
        mine.bias.add_(1)
        assert (mine(x) - F.linear(x, mine.weight, mine.bias)).abs().max() <= 1e-5
        other = layer(3)
        mine.load_state_dict(other.state_dict())
        assert (mine(x) - F.linear(x, other.weight, other.bias)).abs().max() <= 1e-5
        mine.weight.data = torch.zeros_like(mine.weight)
        assert (mine(x) - other.bias).abs().max() <= 1e-6


@pytest.mark.parametrize("fused", [True, False])
def test_answers_between_steps_of_an_optimiser_are_those_of_the_weights_as_they_are(fused):
    mine, x = layer(), torch.randn(5, 24)
    optimizer = torch.optim.AdamW(mine.parameters(), lr=0.1, fused=fused)
    for _ in range(3):
        with torch.inference_mode():
            assert (mine(x) - F.linear(x, mine.weight, mine.bias)).abs().max() <= 1e-5
        optimizer.zero_grad()
        mine(x).square().sum().backward()
        optimizer.step()
    with torch.inference_mode():
        assert (mine(x) - F.linear(x, mine.weight, mine.bias)).abs().max() <= 1e-5


def test_half_precision_is_autocasts():
    mine, x = layer(), torch.randn(50, 24)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        found, expected = mine(x), F.linear(x, mine.weight, mine.bias)
    assert found.dtype == expected.dtype == torch.bfloat16
    assert (found.float() - expected.float()).abs().max() <= 0.02


def test_copies_and_saved_states_hold_plain_weights_only():
    mine, x = layer(), torch.randn(5, 24)
    with torch.no_grad():
        wanted = mine(x)
        assert set(mine.state_dict()) == {"weight", "bias"}
        other = copy.deepcopy(mine)
        assert torch.equal(other(x), wanted)
        other.weight.zero_()
        assert torch.equal(mine(x), wanted)


def test_a_traced_graph_holds_torchs_own_layer():
    mine, x = layer().eval(), torch.randn(5, 24)
    with torch.no_grad():
        graph = torch.export.export(mine, (x,))
    assert "mkldnn" not in str(graph)
