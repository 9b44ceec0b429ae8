"""A CPU that only answers: what it says is what the layers say that learn."""

import copy

import pytest
import torch
from torch import nn

from conftest import packed, plain, rows_of, spread, tiny_shape
from teabert.encoder import Encoder
from teabert.exports.padded import grid
from teabert.injections import make_injection

RAGGED, EQUAL, ALONE = [3, 7, 1, 7], [5, 5, 5], [6]


def build(**facts):
    encoder = Encoder(tiny_shape(**facts)).eval()
    spread(encoder)
    return encoder


def batch_of(lengths, seed=0):
    return packed(rows_of("task", lengths, seed))


def apart(encoder, batch, injection=None):
    """How far answers are from what the layers say that learn"""
    injection = injection or plain()
    with torch.inference_mode():
        found = encoder(batch, injection)
    assert encoder._answering is not None
    return (found - encoder(batch, injection).detach()).abs().max()


@pytest.mark.parametrize("lengths", [RAGGED, EQUAL, ALONE], ids=str)
@pytest.mark.parametrize("activation", ["gelu", "gelu_new", "relu", "silu"])
@pytest.mark.parametrize("buckets", [0, 8])
def test_answers_are_those_of_the_layers_that_learn(lengths, activation, buckets):
    encoder = build(activation=activation, relative_buckets=buckets)
    assert apart(encoder, batch_of(lengths)) <= 1e-5
    assert encoder._answering is None, "what learns will change"


def test_padding_of_a_grid_is_not_read():
    encoder, lengths = build(), torch.tensor([3, 5])
    ids = torch.randint(5, 12, (2, 5))
    real = torch.arange(5) < lengths[:, None]
    batch = grid(ids, real, torch.zeros(2, dtype=torch.long), None, ())
    assert apart(encoder, batch) <= 1e-5
    with torch.inference_mode():
        other = grid(torch.where(real, ids, 1), real, batch.task_of_sequence, None, ())
        found, expected = (encoder(each, plain())[real.reshape(-1)] for each in (other, batch))
    assert (found - expected).abs().max() <= 1e-5


@pytest.mark.parametrize("choice", ["attention", "gate", "lora", "prefix", "adapter", "pal"])
def test_injections_are_heard_also_where_texts_are_equally_long(choice):
    encoder, batch = build(), batch_of(EQUAL)
    injection = make_injection(choice, encoder.shape, ["task"]).eval()
    with torch.no_grad():
        for weight in injection.parameters():
            weight.normal_(0.0, 0.5)
    assert apart(encoder, batch, injection) <= 1e-5
    with torch.inference_mode():
        assert (encoder(batch, injection) - encoder(batch, plain())).abs().max() > 1e-3


def replace_a_layer(block):
    block.output = copy.deepcopy(block.output)
    nn.init.ones_(block.output.weight)


CHANGES = {
    "a weight": lambda block: block.inner.weight.mul_(2),
    "a bias": lambda block: block.inner.bias.add_(1),
    "a norm": lambda block: block.final_norm.bias.add_(1),
    "where a weight lies": lambda block: setattr(block.output.weight, "data", torch.ones(32, 32)),
    "where a bias lies": lambda block: setattr(block.output.bias, "data", torch.ones(32)),
    "a parameter": lambda block: setattr(block.attention_norm, "weight", nn.Parameter(torch.zeros(32))),
    "a layer": replace_a_layer,
    "the activation": lambda block: setattr(block, "activation", nn.Tanh()),
}


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_changed_weights_answer_at_once(change, precision):
    encoder, batch = build(), batch_of(RAGGED)
    with torch.no_grad(), torch.autocast("cpu", precision, enabled=precision != torch.float32):
        before = encoder(batch, plain())
        change(encoder.blocks[-1])
        after = encoder(batch, plain())
        anew = copy.deepcopy(encoder)(batch, plain())
    assert torch.equal(after, anew)
    assert not torch.equal(before, after)


def test_other_blocks_answer_at_once():
    encoder, batch = build(), batch_of(RAGGED)
    with torch.no_grad():
        encoder(batch, plain())
        encoder.blocks = encoder.blocks[::-1]
        assert torch.equal(encoder(batch, plain()), copy.deepcopy(encoder)(batch, plain()))


def other_words(encoder):
    encoder.embeddings.word = nn.Embedding.from_pretrained(encoder.embeddings.word.weight * 2)


def other_norm(encoder):
    encoder.embedding_norm = nn.LayerNorm(encoder.shape.width).eval()
    nn.init.constant_(encoder.embedding_norm.weight, 3.0)


@pytest.mark.parametrize("change", [other_words, other_norm])
def test_other_parts_below_the_blocks_answer_at_once(change):
    encoder, batch = build(), batch_of(ALONE)
    with torch.inference_mode():
        before = encoder(batch, plain())
    change(encoder)
    with torch.inference_mode():
        after = encoder(batch, plain())
    assert (after - before).abs().max() > 0.1
    assert (after - encoder(batch, plain()).detach()).abs().max() <= 1e-5


def test_one_text_can_be_learned_from_after_it_was_answered():
    encoder = build()
    with torch.inference_mode():
        encoder(batch_of(ALONE), plain())
    encoder(batch_of(ALONE), plain()).sum().backward()
    assert encoder.embeddings.position.weight.grad[:6].abs().sum() > 0


def test_hooks_of_layers_are_called():
    encoder, seen = build(), []
    for block in encoder.blocks:
        block.register_forward_hook(lambda block, given, out: seen.append(out.exact.shape))
    with torch.inference_mode():
        encoder(batch_of(ALONE), plain())
    assert seen == [(6, 32)] * 2
