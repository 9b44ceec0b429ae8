"""How much a task reads each word: against transformers' attentions and against plain formulas."""

import copy

import pytest
import torch
from torch.nn import functional as F

from conftest import FAMILIES, published
from injected import ALL, name_of
from predictors import predictor
from teabert.attention import Watch, last_reads
from teabert.batches import collate
from teabert.errors import UserError
from teabert.injections.several import Several
from teabert.pretrained import load_encoder
from teabert.requests import Request, rows_of

ONE = "The films was not nicely, dulls."
WORDS = ["The", "films", "was", "not", "nicely", ",", "dulls", "."]
PAIR = ("How do I cook rice?", "why not learn")
FIRST, SECOND = ["How", "do", "I", "cook", "rice", "?"], ["why", "not", "learn"]


def by_word(encoding, tokens):
    """(tokens,) -> each word's part, in the order of the words"""
    found = {}
    for weight, *key in zip(tokens.tolist(), encoding.sequence_ids, encoding.word_ids, strict=True):
        if key[1] is not None:
            found[tuple(key)] = found.get(tuple(key), 0) + weight
    return [weight / sum(found.values()) for weight in found.values()]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    ("task", "given", "read"), [("mood", ONE, "mean"), ("tags", ONE, "first"), ("near", PAIR, "first")]
)
def test_attention_equals_that_of_transformers(folder_of, text, family, task, given, read):
    mine = predictor(text)
    mine.model.encoder = load_encoder(folder_of(family))[0].eval()
    encoding = text.tokenizer.encode(*([given] if isinstance(given, str) else given))
    inputs = {"input_ids": torch.tensor([encoding.ids]), "output_attentions": True}
    if family in ("bert", "roberta"):  # the others have no segments
        inputs["token_type_ids"] = torch.tensor([encoding.type_ids])
    with torch.no_grad():
        theirs = published(family)(**inputs).attentions[-1][0]  # (attention_heads, tokens, tokens)
    expected = by_word(encoding, (theirs[:, 0] if read == "first" else theirs.mean(1)).mean(0))
    found = mine.attention(given, task)
    assert max(expected) > 1.3 * min(expected), "nothing to compare"
    assert found.weights == pytest.approx(expected, abs=1e-6)


def test_pieces_are_merged_to_the_words_as_they_were_written(text):
    mine = predictor(text)
    assert mine.attention(ONE, "mood").words == WORDS
    assert mine.attention(ONE, "mood").second is None
    for task in ("near", "same", "heard"):
        found = mine.attention(PAIR, task)
        assert (found.words[: found.second], found.words[found.second :]) == (FIRST, SECOND)


@pytest.mark.parametrize("shape", [{}, {"relative_buckets": 8, "segments": 0}], ids=["bert", "mpnet"])
@pytest.mark.parametrize("choice", ALL, ids=name_of)
def test_weights_of_every_injection_and_reader_are_a_distribution_over_the_words(text, choice, shape):
    mine = predictor(text, choice, **shape)
    for name, task in mine.tasks.items():
        found = mine.attention(PAIR if len(task.texts) == 2 else ONE, name)
        assert len(found.weights) == len(found.words)
        assert sum(found.weights) == pytest.approx(1)
        assert min(found.weights) > 0
        if task.sequences == 2:
            assert sum(found.weights[: found.second]) == pytest.approx(0.5)


class Kept(Several):
    """Keeps the values that the last layer reads, and what it made of them"""

    def __init__(self, kept):
        super().__init__({"kept": kept}, kept.tasks)

    def projected(self, q, k, v, at):
        q, k, v = super().projected(q, k, v, at)
        self.values = v
        return q, k, v

    def prefixes(self, at):
        found = super().prefixes(at)
        self.ahead = None if found is None else found[1]
        return found

    def context(self, x, at):
        self.made = x
        return super().context(x, at)


@pytest.mark.parametrize("shape", [{}, {"relative_buckets": 8, "segments": 0}], ids=["bert", "mpnet"])
@pytest.mark.parametrize("choice", ALL, ids=name_of)
def test_what_is_shown_is_what_the_last_layer_computes_with(text, choice, shape):
    mine = predictor(text, choice, **shape)
    batch = batch_of(mine, "same", PAIR)
    kept = Kept(mine.model.injection)
    watch = Watch(kept, layer=1)
    with torch.no_grad():
        mine.model.encoder(batch, watch)
    for sequence, (start, length) in enumerate(zip(batch.layout.starts.tolist(), batch.layout.lengths, strict=True)):
        values = kept.values[start : start + length].view(length, 4, 8)
        if kept.ahead is not None:
            values = torch.cat([kept.ahead[sequence], values])
        reads = last_reads(mine.model.encoder, watch, batch.layout, sequence)
        made = torch.einsum("hqk,khw->qhw", reads, values)
        assert torch.allclose(made, kept.made[start : start + length], atol=1e-5)


def batch_of(mine, task, given):
    """One example"""
    return collate([(rows_of(mine.tasks[task], [mine.prepare(Request(task, given))]), 0)], mine.model.tasks)


def reading_of(mine, task, given):
    """One example's states and part"""
    batch = batch_of(mine, task, given)
    with torch.no_grad():
        return mine.model.read(batch), batch.parts[0]


def texts_of(reading, part):
    """(tokens, width) of each sequence of the only example"""
    for sequence in [part.first] + ([] if part.second is None else [part.second]):
        start = int(reading.layout.starts[sequence])
        yield reading.states[start : start + reading.layout.lengths[int(sequence)]]


def read_by(attention, asking, asked):
    """(tokens of asked,): what the first token of `asking` reads, written out"""
    width = asking.shape[1] // attention.attention_heads
    q, k = attention.query(asking)[0], attention.key(asked)
    heads = [slice(head * width, (head + 1) * width) for head in range(attention.attention_heads)]
    return torch.stack([(k[:, mine] @ q[mine] / width**0.5).softmax(0) for mine in heads]).mean(0)


def test_task_attention_shows_what_its_last_layer_reads(text):
    mine = predictor(text, "attention")
    reading, part = reading_of(mine, "told", ONE)
    (states,) = texts_of(reading, part)
    with torch.no_grad():
        expected = read_by(mine.model.head("told").reader.stack[0].attention, states, states)
    found = mine.attention(ONE, "told")
    assert found.weights == pytest.approx(by_word(text.tokenizer.encode(ONE), expected), abs=1e-6)


def test_task_attention_over_a_pair_shows_what_each_text_reads_of_the_other(text):
    mine = predictor(text, "attention")
    reading, part = reading_of(mine, "heard", PAIR)
    x, y = texts_of(reading, part)
    full, bare = mine.model.head("heard").reader.stack
    with torch.no_grad():
        x, y = layer_of(full, x, y), layer_of(full, y, x)
        expected = read_by(bare.attention, y, x), read_by(bare.attention, x, y)
    words = [by_word(text.tokenizer.encode(each), read) for each, read in zip(PAIR, expected, strict=True)]
    found = mine.attention(PAIR, "heard")
    assert found.weights == pytest.approx([weight / 2 for each in words for weight in each], abs=1e-6)


def layer_of(layer, x, y):
    """A full layer in which x asks y, written out"""
    split = (-1, layer.attention.attention_heads, x.shape[1] // layer.attention.attention_heads)
    q, k, v = (
        part(z).view(split).transpose(0, 1)
        for part, z in ((layer.attention.query, x), (layer.attention.key, y), (layer.attention.value, y))
    )
    read = F.scaled_dot_product_attention(q, k, v).transpose(0, 1).flatten(1)
    return layer.finish(x, layer.attention.output(read))


def test_looking_at_attention_leaves_the_model_as_it_was(text):
    mine = predictor(text, "prefix")
    before = copy.deepcopy(mine.model.state_dict())
    answered = mine.predict(PAIR, task="heard")
    for name, task in mine.tasks.items():
        mine.attention(PAIR if len(task.texts) == 2 else ONE, name)
    assert mine.predict(PAIR, task="heard") == answered
    assert all(torch.equal(tensor, before[name]) for name, tensor in mine.model.state_dict().items())
    assert not any(module._forward_pre_hooks for module in mine.model.modules())


def test_text_that_is_cut_shows_the_words_that_were_read(text):
    found = predictor(text).attention("film " * 100, "mood")
    assert found.words == ["film"] * 38  # 40 tokens, [CLS] and [SEP] among them
    assert sum(found.weights) == pytest.approx(1)


def test_text_without_words_has_no_weights(text):
    found = predictor(text).attention("\u200b", "mood")
    assert (found.words, found.weights) == ([], [])


def test_unusable_text_is_refused_in_words(text):
    with pytest.raises(UserError, match="task 'near' takes a pair of texts, got 'film'"):
        predictor(text).attention("film", "near")


def test_real_mpnet_reads_as_transformers_does(mpnet):
    from transformers import AutoModel, AutoTokenizer

    from teabert.text import TextEncoder

    encoder, _ = load_encoder(mpnet)
    mine = predictor(TextEncoder.load(mpnet, encoder.shape.longest))
    mine.model.encoder = encoder.eval()
    given = "A quietly devastating story, told without haste."
    tokenizer = AutoTokenizer.from_pretrained(mpnet)
    model = AutoModel.from_pretrained(mpnet, attn_implementation="eager").eval()
    with torch.no_grad():
        theirs = model(**tokenizer(given, return_tensors="pt"), output_attentions=True).attentions[-1][0]
    expected = by_word(mine.text.tokenizer.encode(given), theirs.mean(1).mean(0))
    assert mine.attention(given, "mood").weights == pytest.approx(expected, abs=1e-5)
