import copy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import FAMILIES, LONGEST, SPECIAL, WORDS, packed, padded, plain, published, rows_of, tiny_shape
from teabert.batches import Rows, collate
from teabert.encoder import ACTIVATIONS, DistanceBias, Encoder
from teabert.heads import Reading
from teabert.injections import Injection
from teabert.pretrained import load_encoder, to_published
from teabert.text import TextEncoder

LENGTHS = st.lists(st.integers(1, LONGEST), min_size=1, max_size=7)
QUESTION = "How do I learn to cook rice without a pot, and why? "
TEXTS = ["a film", "The plot was very, very dull!", "x", QUESTION * 6, "naïve 中文 🙂"]
PAIRS = [("How can I learn?", "How do you learn to cook rice?"), ("x", "the film " * 30), ("a", "b")]


def batch_of(lengths, seed, joined):
    """A ragged batch; of pairs, each cut somewhere into two texts, where joined"""
    cuts = [1 + (seed + place) % length for place, length in enumerate(lengths)] if joined else None
    return packed(rows_of("task", lengths, seed, second_text=cuts))


def theirs(model, batch):
    """transformers' states of the real tokens, end to end, and its pooled first tokens"""
    inputs = padded(batch, model.config.pad_token_id)
    if model.config.model_type in ("distilbert", "mpnet"):
        del inputs["token_type_ids"]
    output = model(**inputs)
    return output.last_hidden_state[inputs["attention_mask"].bool()], output.get("pooler_output")


def ours(encoder, batch):
    """Our states, and the pooled first tokens where the family has a pooler"""
    states = encoder(batch, plain())
    return states, encoder.pool(states, batch.layout) if encoder.pooler else None


def assert_equal(encoder, model, batch, tolerance=1e-5):
    with torch.no_grad():
        mine, other = ours(encoder, batch), theirs(model, batch)
    assert mine[0].std() > 0.1, "nothing to compare"
    assert (mine[0] - other[0]).abs().max() <= tolerance
    assert (mine[1] is None) == (other[1] is None)
    if mine[1] is not None:
        assert (mine[1] - other[1]).abs().max() <= tolerance


@pytest.mark.parametrize("family", FAMILIES)
def test_states_and_pooler_equal_transformers_on_ragged_batches(family, folder_of):
    encoder, missing = load_encoder(folder_of(family))
    assert missing == []
    exact, model = copy.deepcopy(encoder).double().eval(), copy.deepcopy(published(family)).double()

    @settings(max_examples=25)
    @given(LENGTHS, st.integers(0, 10**6), st.booleans())
    def check(lengths, seed, joined):
        batch = batch_of(lengths, seed, joined and family == "bert")
        assert_equal(encoder.eval(), published(family), batch)
        assert_equal(exact, model, batch, tolerance=1e-9)  # so that what is left above is rounding

    check()


def test_segments_matter_so_that_the_comparison_of_pairs_says_something(encoder):
    single, pair = batch_of([9, 5], 0, joined=False), batch_of([9, 5], 0, joined=True)
    assert pair.segments.sum() > 0
    assert (encoder(single, plain()) - encoder(pair, plain())).abs().max() > 0.1


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("precision", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-4)])
def test_gradients_of_all_parameters_equal_transformers(family, precision, tolerance, folder_of):
    encoder = load_encoder(folder_of(family))[0].to(precision).eval()
    model = copy.deepcopy(published(family)).to(precision)
    batch = batch_of([1, 2, 7, 7, 13, LONGEST], 3, joined=family == "bert")
    direction = torch.randn(len(batch.ids), 32, dtype=precision, generator=torch.Generator().manual_seed(0))

    def pull(states, pooled):
        (states * direction).sum().backward(retain_graph=pooled is not None)
        if pooled is not None:
            (pooled * direction[: len(pooled)]).sum().backward()

    pull(*ours(encoder, batch))
    pull(*theirs(model, batch))
    mine = to_published({name: parameter.grad for name, parameter in encoder.named_parameters()}, encoder.shape)
    other = {name: parameter.grad for name, parameter in model.named_parameters()}
    assert set(mine) == set(other)
    for name, gradient in other.items():
        size = gradient.abs().max()
        # the softmax is blind to what is added to all keys: rounding is all there is
        nothing = name.endswith(("key.bias", "k.bias", "k_lin.bias"))
        assert nothing or size > 1e-3, f"{name} gets no gradient to compare"
        # absolute in float64, relative to the tensor in fp32
        allowed = tolerance if nothing or precision == torch.float64 else tolerance * size
        assert (mine[name] - gradient).abs().max() <= allowed, name


def test_the_padding_token_learns_nothing_even_where_a_text_names_it(encoder):
    batch = batch_of([5], 0, joined=False)
    batch.ids[2] = encoder.shape.padding_id
    encoder(batch, plain()).square().sum().backward()
    gradient = encoder.embeddings.word.weight.grad
    assert not gradient[encoder.shape.padding_id].any()
    assert gradient[batch.ids[0]].any()


def test_distances_fall_into_the_same_buckets_as_in_mpnet():
    from transformers.models.mpnet.modeling_mpnet import MPNetEncoder

    distance = torch.arange(-1000, 1001)
    expected = MPNetEncoder.relative_position_bucket(distance, num_buckets=32)
    assert torch.equal(DistanceBias(32, 4).bucket(distance), expected)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_equal_transformers(name):
    from transformers.activations import ACT2FN

    x = torch.linspace(-6, 6, 1001, dtype=torch.float64)
    assert (ACTIVATIONS[name](x) - ACT2FN[name](x)).abs().max() <= 1e-12


def real_batch(folder, texts):
    tokens = TextEncoder.load(folder, 512).tokens(texts)
    return packed(Rows("task", (tokens.ids,), tokens.second_text, np.zeros(len(texts)), tuple(map(str, texts))))


@pytest.mark.parametrize("texts", [TEXTS, PAIRS], ids=["texts", "pairs"])
@pytest.mark.parametrize("name", ["minilm", "mpnet"])
def test_the_real_encoders_give_the_states_that_transformers_gives(name, texts, request):
    from transformers import AutoModel

    folder = request.getfixturevalue(name)
    model = AutoModel.from_pretrained(folder, attn_implementation="eager").float().eval()
    encoder, missing = load_encoder(folder)
    assert missing == []
    assert_equal(encoder.eval(), model, real_batch(folder, texts))


@settings(max_examples=20)
@given(LENGTHS, st.integers(0, 10**6))
def test_a_sequence_reads_the_same_alone_and_among_others(lengths, seed):
    torch.manual_seed(0)
    encoder = Encoder(tiny_shape()).double().eval()
    rows = rows_of("task", lengths, seed)
    together = packed(rows)
    states = encoder(together, plain()).split(together.layout.lengths)
    places = collate([(rows, row) for row in range(len(rows))], ["task"]).parts[0].first.tolist()
    for row, place in enumerate(places):
        alone = encoder(collate([(rows, row)], ["task"]), plain())
        assert (alone - states[place]).abs().max() <= 1e-9


def test_dropout_works_in_training_only(encoder):
    batch = batch_of([5, 9], 0, joined=False)
    assert torch.equal(encoder(batch, plain()), encoder(batch, plain()))
    encoder.train()
    assert not torch.equal(encoder(batch, plain()), encoder(batch, plain()))


class Witness(Injection):
    """Remembers what it saw."""

    def __init__(self, shape):
        super().__init__(Injection.Config(), shape, ["a", "b"])
        self.seen = []

    def see(self, hook, at, *tensors):
        self.seen.append((hook, at.layer, [tuple(tensor.shape) for tensor in tensors], at.task_of_token.tolist()))
        return tensors[0] if len(tensors) == 1 else tensors

    def embedded(self, x, at):
        return self.see("embedded", at, x)

    def projected(self, q, k, v, at):
        return self.see("projected", at, q, k, v)

    def context(self, x, at):
        return self.see("context", at, x)

    def attended(self, x, at):
        return self.see("attended", at, x)

    def fed_forward(self, x, at):
        return self.see("fed_forward", at, x)


def test_the_injection_is_called_at_every_site_with_the_task_of_each_token(encoder):
    rows = {task: rows_of(task, lengths) for task, lengths in {"a": [3], "b": [2, 4]}.items()}
    batch = collate([(rows["b"], 0), (rows["a"], 0), (rows["b"], 1)], ["a", "b"])
    witness = Witness(encoder.shape)
    assert torch.equal(encoder(batch, witness), encoder(batch, plain()))
    tasks = [1] * 2 + [0] * 3 + [1] * 4  # shortest first
    block = [("projected", [(9, 32)] * 3), ("context", [(9, 4, 8)]), ("attended", [(9, 32)]), ("fed_forward", [(9, 32)])]
    expected = [("embedded", -1, [(9, 32)])] + [(hook, layer, sizes) for layer in (0, 1) for hook, sizes in block]
    assert witness.seen == [(*site, tasks) for site in expected]


def test_mean_and_first_token_are_those_of_each_sequence(encoder):
    batch = batch_of([4, 1, 6], 0, joined=False)
    states = torch.randn(11, 32)
    reading = Reading(states, batch.layout, encoder)
    parts = states.split([1, 4, 6])
    assert torch.allclose(reading.mean, torch.stack([part.mean(0) for part in parts]), atol=1e-6)
    assert torch.equal(reading.first, torch.stack([part[0] for part in parts]))
    assert torch.allclose(reading.pooled, torch.tanh(encoder.pooler(reading.first)))


def test_special_tokens_stand_first_in_the_test_vocabulary():
    assert WORDS[: len(SPECIAL)] == SPECIAL
    assert len(set(WORDS)) == len(WORDS)
    assert 40 <= len(WORDS) <= 64
