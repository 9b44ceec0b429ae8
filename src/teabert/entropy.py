"""How evenly task attention reads a text before it has learned anything: its entropy at the start, for each way to start.

Real texts through a real encoder, then new attention weights on top, as task_attention starts them. An entropy of 1 is
the mean over all tokens, 0 is one token alone.
"""

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor

from teabert.batches import collate
from teabert.device import pick_device
from teabert.encoder import Encoder
from teabert.heads.attending import Attention, Pack, TaskAttention
from teabert.heads.reading import Reading
from teabert.injections import make_injection
from teabert.pretrained import load_encoder
from teabert.progress import Progress
from teabert.tasks import Task
from teabert.tasks.reading import Example
from teabert.text import TextEncoder

BATCH = 32
STARTS: tuple[str, ...] = get_args(TaskAttention.Config.model_fields["start"].annotation)


@dataclass(frozen=True)
class Start:
    """One line of `teabert entropy`."""

    start: str
    entropy: float
    """normalised, of what every token reads: mean over texts, tokens, attention heads and seeds"""
    spread: float
    """its standard deviation over the seeds"""
    first: float
    """the same, of what the first token reads, which is what the head gets"""
    from_mean: float
    """how far what the first token reads lies from the mean of the tokens' values, relative to the values' size"""

    def as_json(self) -> dict[str, Any]:
        """For --json."""
        return asdict(self)


def entropies(folder: Path, task: Task, examples: Sequence[Example], seeds: int, progress: Progress) -> list[Start]:
    """Every start of task attention on these texts; pairs attend to each other, as in the papers."""
    encoder, _ = load_encoder(folder)
    encoder.to(pick_device()).eval()
    text = TextEncoder.load(folder, encoder.shape.longest, encoder.shape.vocabulary)
    found: dict[str, list[tuple[float, float, float]]] = {start: [] for start in STARTS}
    with torch.inference_mode(), progress.bar("reading", len(STARTS) * seeds) as advance:
        packs = list(_read(encoder, task, text, examples))
        for start in STARTS:
            for seed in range(seeds):
                torch.manual_seed(seed)
                config = TaskAttention.Config(layers=1, bare_last=True, start=start)
                layer = TaskAttention(config, encoder.shape, task.sequences).to(pick_device()).stack[0]
                found[start].append(_measure(layer.attention, packs))
                advance(1)
    lines = []
    for start, values in found.items():
        whole, first, away = zip(*values, strict=True)
        spread = statistics.stdev(whole) if len(whole) > 1 else 0.0
        lines.append(Start(start, statistics.mean(whole), spread, statistics.mean(first), statistics.mean(away)))
    return lines


States = tuple[Tensor, Pack]
"""Token states, and the sequences that they make up"""


def _read(encoder: Encoder, task: Task, text: TextEncoder, examples: Sequence[Example]) -> Iterator[tuple[States, States]]:
    """Who asks and who is asked, a batch at a time: a text itself, or the other text of the pair"""
    rows, _ = text.rows(task, examples)
    nothing = make_injection("none", encoder.shape, [task.name])
    for start in range(0, len(rows), BATCH):
        chosen = range(start, min(start + BATCH, len(rows)))
        batch = collate([(rows, row) for row in chosen], [task.name]).to(pick_device())
        reading, part = Reading(encoder(batch, nothing), batch.layout, encoder), batch.parts[0]
        one = _states(reading, part.first)
        yield one, one if part.second is None else _states(reading, part.second)


def _states(reading: Reading, sequences: Tensor) -> States:
    pack = Pack.of(sequences, reading.layout)
    return reading.states.index_select(0, pack.tokens), pack


def _measure(attention: Attention, packs: Sequence[tuple[States, States]]) -> tuple[float, float, float]:
    """Entropy over all tokens, over first tokens, and how far the first token's reading is from the mean of the values"""
    every: list[Tensor] = []
    first: list[Tensor] = []
    away: list[Tensor] = []
    for (asking, of), (asked, over) in packs:
        weights = attention.weights(asking, asked, of, over)  # (examples, attention_heads, asking tokens, asked tokens)
        sizes = over.real.sum(1)
        entropy = torch.special.entr(weights).sum(-1) / sizes.log()[:, None, None]
        per_token = entropy.mean(1)  # (examples, asking tokens)
        every.append(per_token[of.real])
        first.append(per_token[:, 0])
        values = over.grid(attention.value(asked).view(len(asked), attention.attention_heads, -1)).transpose(1, 2)
        mean = values.sum(2) / sizes[:, None, None]
        read = (weights[:, :, :1] @ values).squeeze(2)
        away.append((read - mean).flatten(1).norm(dim=1) / mean.flatten(1).norm(dim=1))
    whole, at_first, apart = (torch.cat(each).mean().item() for each in (every, first, away))
    return whole, at_first, apart
