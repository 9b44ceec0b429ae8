"""How much a task reads each word: attention of the last layer, merged from pieces to words.

What [CLS] (for mean readers, every token) attends to in the encoder's last layer, as the injection leaves it; for task
attention, what its own last layer attends to. Found in a pass of its own: ordinary requests carry none of this.
"""

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from teabert.batches import Batch, Layout, Part, collate
from teabert.device import autocast
from teabert.encoder import Encoder
from teabert.heads import Reading
from teabert.heads.attending import Pack, TaskAttention
from teabert.heads.reading import FirstToken
from teabert.injections import Injection, Site
from teabert.injections.several import Several
from teabert.model import Model
from teabert.requests import Prepared, rows_of
from teabert.tasks import Task
from teabert.text import TextEncoder


@dataclass(frozen=True)
class Attention:
    """How much a task reads each word."""

    words: list[str]
    """of both texts, for a pair"""
    weights: list[float]
    """of each word; together 1, for a pair encoded apart one half for each text"""
    second: int | None
    """where the second text's words begin; nothing for one text"""


class Watch(Several):
    """An injection as it is, and what the last layer's queries and keys were."""

    asking: Tensor
    asked: Tensor
    prefix: Tensor | None

    def __init__(self, watched: Injection, layer: int) -> None:
        super().__init__({"watched": watched}, watched.tasks)
        self.layer = layer

    def projected(self, q: Tensor, k: Tensor, v: Tensor, at: Site) -> tuple[Tensor, Tensor, Tensor]:
        """q, k, v: (tokens, width) each"""
        q, k, v = super().projected(q, k, v, at)
        if at.layer == self.layer:
            self.asking, self.asked = q, k
        return q, k, v

    def prefixes(self, at: Site) -> tuple[Tensor, Tensor] | None:
        """(sequences, length, attention_heads, head_width) each"""
        found = super().prefixes(at)
        if at.layer == self.layer:
            self.prefix = None if found is None else found[0]
        return found


@dataclass(frozen=True)
class Spelling:
    """The words of a sequence, and which of them each token is a piece of."""

    words: list[str]
    word_of_token: list[int | None]
    """nothing for special tokens"""
    second: int
    """where the second text's words begin; the end where there is none"""


def spell(text: TextEncoder, task: Task, texts: Sequence[str]) -> list[Spelling]:
    """The words of a text or pair, for each sequence that it is encoded as."""
    text.tokenizer.enable_truncation(min(task.max_tokens or text.longest, text.longest))
    if task.sequences == 2:
        return [_spelling(text.tokenizer.encode(each), [each]) for each in texts]
    return [_spelling(text.tokenizer.encode(texts[0], texts[1] if len(texts) == 2 else None), texts)]


def _spelling(encoding: Any, texts: Sequence[str]) -> Spelling:
    spans: dict[tuple[int, int], tuple[int, int]] = {}
    keys = [
        None if word is None or special else (number, word)
        for number, word, special in zip(
            encoding.sequence_ids, encoding.word_ids, encoding.special_tokens_mask, strict=True
        )
    ]
    for key, (start, end) in zip(keys, encoding.offsets, strict=True):
        if key is not None:
            first, last = spans.get(key, (start, end))
            spans[key] = (min(first, start), max(last, end))
    place = {key: number for number, key in enumerate(spans)}
    words = [texts[number][start:end] for (number, _), (start, end) in spans.items()]
    second = sum(number == 0 for number, _ in spans)
    return Spelling(words, [None if key is None else place[key] for key in keys], second)


@torch.inference_mode()
def attention(model: Model, precision: str, task: Task, prepared: Prepared, spelled: Sequence[Spelling]) -> Attention:
    """How much the task reads each word of one request."""
    batch = collate([(rows_of(task, [prepared]), 0)], model.tasks).to(model.device)
    watch = Watch(model.injection, model.encoder.shape.layers - 1)
    with autocast(precision, model.device):
        states = model.encoder(batch, watch).float()
    reader = model.head(task.name).reader
    if isinstance(reader, TaskAttention):
        tokens = _by_reader(reader, Reading(states, batch.layout, model.encoder), batch.parts[0])
    else:
        tokens = _by_encoder(model.encoder, watch, batch, isinstance(reader, FirstToken))
    weights = [_of_words(mine, spelling) for mine, spelling in zip(tokens, spelled, strict=True)]
    words = [word for spelling in spelled for word in spelling.words]
    found = [weight / len(spelled) for mine in weights for weight in mine]
    return Attention(words, found, spelled[0].second if len(task.texts) == 2 else None)


def _of_words(tokens: Tensor, spelling: Spelling) -> list[float]:
    """Each word's part of what goes to words at all"""
    found = [0.0] * len(spelling.words)
    for weight, word in zip(tokens.tolist(), spelling.word_of_token, strict=True):
        if word is not None:
            found[word] += weight
    total = sum(found)
    return [weight / total for weight in found]


def _by_encoder(encoder: Encoder, watch: Watch, batch: Batch, first_only: bool) -> list[Tensor]:
    """(tokens,) for each sequence of the only example: what its first token, or every token, reads in the last layer"""
    found, part = [], batch.parts[0]
    for sequence in [int(part.first), *([] if part.second is None else [int(part.second)])]:
        reads = last_reads(encoder, watch, batch.layout, sequence)[..., -batch.layout.lengths[sequence] :]
        found.append((reads[:, 0] if first_only else reads.mean(1)).mean(0))
    return found


def last_reads(encoder: Encoder, watch: Watch, layout: Layout, sequence: int) -> Tensor:
    """(attention_heads, tokens, prefix + tokens): how much each token reads of each, in the last layer"""
    start, length = int(layout.starts[sequence]), layout.lengths[sequence]
    q, k = (_heads(x[start : start + length], encoder.shape.attention_heads) for x in (watch.asking, watch.asked))
    if watch.prefix is not None:
        k = torch.cat([watch.prefix[sequence].float().transpose(0, 1), k], dim=1)
    scores = _scores(q, k)
    if encoder.distance is not None:
        scores[..., -length:] += encoder.distance(length)
    return scores.softmax(-1)


def _by_reader(reader: TaskAttention, reading: Reading, part: Part) -> list[Tensor]:
    """(tokens,) for each sequence of the only example: what is read of it in the last layer of the task's own"""
    watched = copy.deepcopy(reader, {id(weights): weights for weights in reader.parameters()})  # has the same weights
    asked: list[tuple[Tensor, Tensor, Pack, Pack]] = []
    last = watched.stack[-1].attention
    last.register_forward_pre_hook(lambda module, given: asked.append(given))
    watched(reading, part)
    found = []
    for asking, over, of, _ in asked:
        q, k = (_heads(x, last.attention_heads) for x in (last.query(asking[of.starts]), last.key(over)))
        found.append(_scores(q, k).softmax(-1)[:, 0].mean(0))
    return found[::-1]  # of a pair, the first text asks the second one first


def _heads(x: Tensor, attention_heads: int) -> Tensor:
    """(tokens, width) -> (attention_heads, tokens, head_width)"""
    return x.float().view(len(x), attention_heads, -1).transpose(0, 1)


def _scores(q: Tensor, k: Tensor) -> Tensor:
    """(attention_heads, tokens, head_width) each -> (attention_heads, asking tokens, asked tokens)"""
    return q @ k.transpose(1, 2) / math.sqrt(q.shape[-1])
