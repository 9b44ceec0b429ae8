"""Each injection against its formula, and against the libraries that have it."""

import pytest
import torch
import transformers
from torch import nn
from torch.nn import functional as F

from conftest import padded, tiny_shape
from injected import TASKS, Watch, answers, build, chosen, mixed, pack
from teabert.encoder import Stream
from teabert.injections import Injection
from teabert.injections.base import Site
from teabert.injections.options import LayerOptions, Span
from teabert.injections.pertask import spread as spread_out
from teabert.injections.pertask import with_rows
from teabert.injections.several import Several
from teabert.pretrained import to_published


def site(model, batch, layer=1):
    """Somewhere inside the encoder, with random states"""
    layout = batch.layout
    x = torch.randn(len(batch.ids), 32, generator=torch.Generator().manual_seed(4))
    tasks = batch.task_of_sequence
    return Site(layer, x, tasks, tasks[layout.sequence_of_token], layout, tuple(part.task for part in batch.parts))


def test_attention_adds_a_tasks_vectors_to_queries_keys_and_values():
    model, batch = build("attention"), pack(mixed())
    at = site(model, batch)
    out = with_rows(torch.zeros(len(batch.ids), 96), model.injection.shift(at), at)
    expected = torch.stack([model.injection.vectors[task][1] for task in TASKS])[at.task_of_token]
    assert torch.equal(out, expected)


def test_attention_without_keys_leaves_them_alone():
    model, batch = build({"method": "attention", "vectors": "qv"}), pack(mixed())
    out = model.injection.shift(site(model, batch))
    expected = torch.stack([model.injection.vectors[task][1] for task in TASKS])
    assert torch.equal(out[:, :32], expected[:, :32])
    assert not out[:, 32:64].any()
    assert torch.equal(out[:, 64:], expected[:, 32:])


def test_of_several_methods_each_takes_what_the_one_before_it_returned():
    choice = ["projected", {"method": "activated", "act": "tanh", "init": "paper"}, "attention"]
    model, batch = build(choice), pack(mixed())
    at, mine = site(model, batch), list(model.injection.each())
    given = torch.randn(len(batch.ids), 96, generator=torch.Generator().manual_seed(6))
    first = with_rows(given, mine[0].shift(at), at)
    second = torch.cat(mine[1].projected(*first.chunk(3, dim=1), at), dim=1)
    expected = with_rows(second, mine[2].shift(at), at)
    shifted = with_rows(given, model.injection.shift(at), at)
    assert torch.equal(torch.cat(model.injection.projected(*shifted.chunk(3, dim=1), at), dim=1), expected)


@pytest.mark.parametrize("share", [False, True])
def test_projected_adds_a_tasks_projected_vector(share):
    model, batch = build({"method": "projected", "share_layers": share}), pack(mixed())
    at = site(model, batch)
    out = with_rows(torch.zeros(len(batch.ids), 96), model.injection.shift(at), at)
    weight = model.injection.projections[0 if share else 1].weight
    expected = torch.stack([weight @ model.injection.vectors[task][0] for task in TASKS])[at.task_of_token]
    assert (out - expected).abs().max() <= 1e-5


@pytest.mark.parametrize("init", ["safe", "paper", "residual"])
@pytest.mark.parametrize("act", ["elu", "tanh", "selu", "gelu", "relu"])
def test_activated_projects_what_came_through_the_activation(init, act):
    model, batch = build({"method": "activated", "init": init, "act": act}), pack(mixed())
    at, mine = site(model, batch), model.injection
    given = torch.randn(3, len(batch.ids), 32, generator=torch.Generator().manual_seed(6))
    vectors = torch.stack([mine.vectors[task][0] for task in TASKS])[at.task_of_token]
    for i, out in enumerate(mine.projected(*given, at)):
        shifted = given[i] + vectors @ mine.projections[1].weight.chunk(3)[i].T
        last = getattr(F, act)(shifted) @ mine.last[1][i].T
        assert (out - (shifted + last if init == "residual" else last)).abs().max() <= 1e-5


def test_the_gradient_of_a_half_precision_table_counts_every_token():
    table = torch.zeros(2, 4, dtype=torch.bfloat16, requires_grad=True)
    spread_out(table, torch.tensor([0, 1] * 2560), table).sum().backward()
    assert (table.grad == 2560).all()  # summed up in bf16 it would stop at 256


def test_lora_adds_a_scaled_product_of_two_small_matrices_to_queries_and_values():
    model, batch = build({"method": "lora", "rank": 2, "alpha": 5}), pack(mixed())
    at, mine = site(model, batch), model.injection
    q, k, v = torch.zeros(3, *at.input.shape)
    q, k, v = mine.projected(q, k, v, at)
    assert not k.any()
    for token, task in enumerate(at.task_of_token.tolist()):
        down, up = mine.down[TASKS[task]][1], mine.up[TASKS[task]][1]
        assert (q[token] - 5 / 2 * up[0] @ down[:2] @ at.input[token]).abs().max() <= 1e-5
        assert (v[token] - 5 / 2 * up[1] @ down[2:] @ at.input[token]).abs().max() <= 1e-5


def theirs(encoder):
    """HuggingFace's BertModel with our weights"""
    shape = encoder.shape
    config = transformers.BertConfig(
        vocab_size=shape.vocabulary,
        hidden_size=shape.width,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.attention_heads,
        intermediate_size=shape.inner_width,
        max_position_embeddings=shape.positions,
        type_vocab_size=shape.segments,
        layer_norm_eps=shape.epsilon,
    )
    model = transformers.BertModel(config)
    model.load_state_dict(to_published(encoder.state_dict(), shape))
    return model.eval()


def states_of(model, batch, **more):
    inputs = padded(batch, 0)
    with torch.no_grad():
        return model(**inputs, **more).last_hidden_state[inputs["attention_mask"].bool()]


def test_lora_agrees_with_peft_in_one_batch_of_mixed_tasks():
    peft = pytest.importorskip("peft")
    model, batch = build({"method": "lora", "rank": 2, "alpha": 5}), pack(mixed())
    plain, mine = theirs(model.encoder), model.injection
    options = {"r": 2, "lora_alpha": 5, "target_modules": ["query", "value"]}
    other = peft.get_peft_model(plain, peft.LoraConfig(**options), adapter_name="mood")
    for task in TASKS[1:]:
        other.add_adapter(task, peft.LoraConfig(**options))
    with torch.no_grad():
        for layer, block in enumerate(plain.encoder.layer):
            for place, part in enumerate((block.attention.self.query, block.attention.self.value)):
                for task in TASKS:
                    part.lora_A[task].weight.copy_(mine.down[task][layer].chunk(2)[place])
                    part.lora_B[task].weight.copy_(mine.up[task][layer, place])
        ours = model.encoder(batch, mine)
    names = [TASKS[task] for task in batch.task_of_sequence.tolist()]
    assert (states_of(other.eval(), batch, adapter_names=names) - ours).abs().max() <= 1e-5
    assert (states_of(other, batch, adapter_names=["mood"] * len(names)) - ours).abs().max() > 1e-2


def test_adapters_agree_with_bottlenecks_hooked_into_transformers_bert_where_houlsby_has_them():
    model, batch = build({"method": "adapter", "size": 5}), pack(chosen({"near": 4}))
    plain, mine = theirs(model.encoder), model.injection
    for layer, block in enumerate(plain.encoder.layer):
        for into, where in ((mine.after_attention, block.attention.output), (mine.after_feed_forward, block.output)):
            down, up = nn.Linear(32, 5), nn.Linear(5, 32)
            values = (into.down, into.down_bias, into.up, into.up_bias)
            for parameter, value in zip((down.weight, down.bias, up.weight, up.bias), values, strict=True):
                parameter.data.copy_(value["near"][layer])
            bottleneck = nn.Sequential(down, nn.GELU(), up)
            where.dropout.register_forward_hook(lambda _, given, out, way=bottleneck: out + way(out))
    with torch.no_grad():
        ours = model.encoder(batch, mine)
    assert (states_of(plain, batch) - ours).abs().max() <= 1e-5


def test_an_adapter_is_a_bottleneck_with_a_way_past_it():
    model, batch = build({"method": "adapter", "size": 5}), pack(mixed())
    at = site(model, batch)
    for part, hook in (("after_attention", "attended"), ("after_feed_forward", "fed_forward")):
        mine, out = getattr(model.injection, part), getattr(model.injection, hook)(at.input, at)
        for token, task in enumerate(at.task_of_token.tolist()):
            x, name = at.input[token], TASKS[task]
            low = F.gelu(mine.down[name][1] @ x + mine.down_bias[name][1])
            assert (out[token] - x - mine.up[name][1] @ low - mine.up_bias[name][1]).abs().max() <= 1e-5


def test_a_projected_attention_layer_is_a_narrow_attention_within_each_sequence():
    model, batch = build({"method": "pal", "width": 12, "attention_heads": 3}), pack(mixed())
    at, mine = site(model, batch), model.injection
    out = mine.fed_forward(torch.zeros_like(at.input), at)
    for sequence, (start, length) in enumerate(zip(batch.layout.starts, batch.layout.lengths, strict=True)):
        name = TASKS[batch.task_of_sequence[sequence]]
        low = at.input[start : start + length] @ mine.down[name][0].T
        q, k, v = (low @ mine.projection[name][1].T).view(length, 3, 3, 4).unbind(1)  # (length, heads, head_width)
        scores = torch.einsum("ihd,jhd->hij", q, k) / 4**0.5
        context = torch.einsum("hij,jhd->ihd", scores.softmax(-1), v).reshape(length, 12)
        expected = F.gelu(context @ mine.up[name][0].T)
        assert (out[start : start + length] - expected).abs().max() <= 1e-5


def test_a_prefix_starts_with_random_keys_and_with_values_of_zero():
    for vectors in build("prefix", filled=False).injection.vectors.values():
        assert vectors[:, 0].all()
        assert not vectors[:, 1].any()


@pytest.mark.parametrize("biased", [False, True])
def test_a_prefix_is_read_as_if_its_tokens_stood_before_each_sequence(biased):
    model, batch = build({"method": "prefix", "length": 3}), pack(mixed())
    at, mine, watch = site(model, batch, 0), model.injection, Watch(Injection.Config(), tiny_shape(), TASKS)
    block, bias = model.encoder.blocks[0], torch.randn(4, 20, 20) if biased else None
    block(at, Stream(at.input, at.input), bias, Several({"mine": mine, "watch": watch}, TASKS))
    for sequence, (start, length) in enumerate(zip(batch.layout.starts, batch.layout.lengths, strict=True)):
        vectors = mine.vectors[TASKS[batch.task_of_sequence[sequence]]][0].view(2, 3, 4, 8)
        q, k, v = block.projection(at.input[start : start + length]).view(length, 3, 4, 8).unbind(1)
        k, v = torch.cat([vectors[0], k]), torch.cat([vectors[1], v])
        scores = torch.einsum("ihd,jhd->hij", q, k) / 8**0.5
        if biased:  # by distance, which a prefix does not have
            scores[:, :, 3:] += bias[:, :length, :length]
        context = torch.einsum("hij,jhd->ihd", scores.softmax(-1), v).reshape(length, 32)
        assert (watch.seen[start : start + length] - context).abs().max() <= 1e-5


def test_gates_scale_attention_heads():
    model, batch = build("gate"), pack(mixed())
    at = site(model, batch)
    x = at.input.view(-1, 4, 8)
    gates = torch.stack([1 + model.injection.gates[task][1] for task in TASKS])[at.task_of_token]
    assert torch.allclose(model.injection.context(x, at), x * gates[..., None])


def test_layers_that_are_not_named_are_plain():
    named = build({"method": "attention", "layers": "1"})
    both = build("attention")
    with torch.no_grad():
        for task in TASKS:
            both.injection.vectors[task][0] = 0
            both.injection.vectors[task][1] = named.injection.vectors[task][0]
    found = answers(named, [pack(mixed())])
    assert all(torch.equal(out, found[key]) for key, out in answers(both, [pack(mixed())]).items())


def test_named_layers_have_their_own_rows_in_order():
    span = Span(LayerOptions(layers="1-2"), 4)
    assert [layer in span for layer in range(4)] == [False, True, True, False]
    assert (span.rows, span.row(1), span.row(2)) == (2, 0, 1)
    shared = Span(LayerOptions(layers="1-2", share_layers=True), 4)
    assert (shared.rows, shared.row(1), shared.row(2)) == (1, 0, 0)
