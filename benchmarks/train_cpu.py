"""Training speed and memory on a CPU: the usual HuggingFace loop against ours, in one process on the same batches.

    python benchmarks/train_cpu.py [--out results/speed/train_cpu.md]

MiniLM-L6, the three real tasks (TEABERT_DATA), pairs encoded apart, one task a batch in proportion to its rows, dropout
on, AdamW each step. `usual` pads each batch to its longest text; `grouped` trains on the same examples in batches of like
length; `compiled` is usual with torch.compile and the fused AdamW, compiled before the clock runs. Rounds of the contenders
alternate; the table gives all examples over all seconds, and the range over rounds. Memory is measured in processes of
their own: the peak above what the loaded model and the optimiser take.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from torch import Tensor, nn

from teabert.batches import Rows
from teabert.config import Recipe, parse_recipe
from teabert.device import autocast
from teabert.hub import encoder_folder
from teabert.losses import make_loss
from teabert.progress import Quiet
from teabert.runs import machine_facts
from teabert.training import Trainer

Pairs = Any
STEPS = {16: 10, 64: 4}
"""Steps in a round."""
ROUNDS = 5


def recipe(batch: int, precision: str) -> Recipe:
    """Both sides' setting."""
    apart = {"pair": "apart", "head": {"read": "mean", "answer": "difference", "dropout": 0.1}}
    tasks = {"sst": {"head": {"dropout": 0.1}}, "quora": {**apart, "take": 8490}, "sts": apart}
    sampling = {"batch": batch, "mixed": False, "strategy": "proportional"}
    return parse_recipe({"tasks": tasks, "sampling": sampling, "train": {"precision": precision, "lr": 2e-5}})


class Usual(nn.Module):
    """What a user writes today: BertModel, padded batches, one encoder call for each text column."""

    def __init__(self, recipe: Recipe, compiled: bool = False) -> None:
        from transformers import AutoModel

        super().__init__()
        self.tasks = recipe.tasks
        self.encoder = AutoModel.from_pretrained(encoder_folder("minilm"), add_pooling_layer=False)
        width = self.encoder.config.hidden_size
        self.encode: Any = torch.compile(self.encoder, dynamic=True) if compiled else self.encoder
        self.dropout = nn.Dropout(0.1)
        heads = {
            name: nn.Linear(width * (3 if task.sequences == 2 else 1), task.outputs) for name, task in self.tasks.items()
        }
        self.heads = nn.ModuleDict(heads)

    def forward(self, rows: Rows, picked: Sequence[int]) -> Tensor:
        """The mean loss of one task's rows"""
        vectors = [self.read([column[row] for row in picked]) for column in rows.sequences]
        joined = vectors[0] if len(vectors) == 1 else torch.cat([*vectors, (vectors[0] - vectors[1]).abs()], -1)
        outputs = self.heads[rows.task](joined)
        labels = torch.from_numpy(rows.labels[list(picked)])
        return make_loss(self.tasks[rows.task].loss_choice)(outputs.float(), labels).mean()

    def read(self, texts: Sequence[np.ndarray]) -> Tensor:
        """The dropped-out mean over each text's tokens"""
        longest = max(len(ids) for ids in texts)
        ids = torch.zeros(len(texts), longest, dtype=torch.long)
        mask = torch.zeros(len(texts), longest, dtype=torch.long)
        for place, each in enumerate(texts):
            ids[place, : len(each)] = torch.from_numpy(each)
            mask[place, : len(each)] = 1
        states = self.encode(input_ids=ids, attention_mask=mask).last_hidden_state
        weights = mask.unsqueeze(-1).to(states.dtype)
        return self.dropout((states * weights).sum(1) / weights.sum(1))


class Bench:
    """One contender: `step` trains on one batch."""

    def __init__(self, kind: str, batch: int, precision: str, folder: Path) -> None:
        self.precision = precision
        self.trainer = Trainer.begin(recipe(batch, precision), folder, Quiet())
        self.loops = {}
        if kind != "ours":
            self.loops["usual"] = self.loop(compiled=False)
        if kind == "both":
            self.loops["compiled"] = self.loop(compiled=True)

    def loop(self, compiled: bool) -> tuple[Usual, torch.optim.Optimizer]:
        """HuggingFace's model and its optimiser"""
        model = Usual(self.trainer.recipe, compiled).train()
        return model, torch.optim.AdamW(model.parameters(), lr=2e-5, weight_decay=0.0, fused=compiled or None)

    def ours(self, pairs: Pairs) -> None:
        """The real training step"""
        self.trainer.step([pairs])

    def compiled(self, pairs: Pairs) -> None:
        """The usual training step, compiled"""
        self.usual(pairs, "compiled")

    def usual(self, pairs: Pairs, which: str = "usual") -> None:
        """The usual training step"""
        model, optimizer = self.loops[which]
        rows = self.trainer.source.rows[self.trainer.source.tasks[int(pairs[0, 0])]]
        with autocast(self.precision, torch.device("cpu")):
            loss = model(rows, [int(row) for row in pairs[:, 1]])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def grouped(trainer: Trainer, batches: list[Pairs], batch: int) -> list[Pairs]:
    """The very same examples, each task's sorted by length before they are cut into batches; batches then shuffled."""
    made: list[Pairs] = []
    for task in sorted({int(pairs[0, 0]) for pairs in batches}):
        rows = trainer.source.rows[trainer.source.tasks[task]]
        mine = np.concatenate([pairs for pairs in batches if pairs[0, 0] == task])
        mine = mine[np.argsort(rows.lengths()[mine[:, 1]], kind="stable")]
        made += [mine[start : start + batch] for start in range(0, len(mine), batch)]
    return [made[place] for place in np.random.default_rng(0).permutation(len(made))]


def one_of_each(batches: list[Pairs]) -> list[Pairs]:
    """Two batches of every task: what a compiler has to have seen"""
    tasks = sorted({int(pairs[0, 0]) for pairs in batches})
    return [pairs for task in tasks for pairs in [each for each in batches if each[0, 0] == task][:2]]


def padding(trainer: Trainer, batches: list[Pairs]) -> float:
    """Padded tokens of the usual loop over real tokens."""
    padded = real = 0
    for pairs in batches:
        rows = trainer.source.rows[trainer.source.tasks[int(pairs[0, 0])]]
        for column in rows.sequences:
            sizes = [len(column[int(row)]) for row in pairs[:, 1]]
            padded, real = padded + max(sizes) * len(sizes), real + sum(sizes)
    return padded / real


def measure(batch: int, precision: str, rounds: int, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """Examples a second of each contender."""
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench("both", batch, precision, Path(folder) / "run")
        epoch = [pairs for pairs in bench.trainer.sampler.epoch(0) if len(pairs) == batch]
        plain = epoch[: STEPS[batch] * rounds]
        like = grouped(bench.trainer, plain, batch)
        contenders: dict[str, tuple[Callable[[Pairs], None], list[Pairs]]] = {
            "usual": (bench.usual, plain),
            "grouped": (bench.usual, like),
            "compiled": (bench.compiled, plain),
            "ours": (bench.ours, plain),
        }
        speeds: dict[str, list[float]] = {name: [] for name in contenders}
        seconds: dict[str, float] = dict.fromkeys(contenders, 0.0)
        for turn in range(-1, rounds):  # turn -1 warms up
            for name, (step, batches) in contenders.items():
                mine = batches[max(turn, 0) * STEPS[batch] :][: STEPS[batch] if turn >= 0 else 2]
                mine = one_of_each(batches) if turn < 0 and name == "compiled" else mine
                begun = time.perf_counter()
                for pairs in mine:
                    step(pairs)
                if turn >= 0:
                    spent = time.perf_counter() - begun
                    seconds[name] += spent
                    speeds[name].append(len(mine) * batch / spent)
            say(f"batch {batch} {precision} round {turn + 1} of {rounds}")
        waste = {"usual": padding(bench.trainer, plain), "grouped": padding(bench.trainer, like), "ours": 1.0}
        waste["compiled"] = waste["usual"]
    return [
        {
            "batch": batch,
            "precision": precision,
            "loop": name,
            "examples/s": len(plain) * batch / seconds[name],
            "lowest": min(found),
            "highest": max(found),
            "padded/real tokens": waste[name],
            "peak MB": None if name == "compiled" else memory(name, batch, precision),  # the compiler's own would count
        }
        for name, found in speeds.items()
    ]


def memory(kind: str, batch: int, precision: str) -> float:
    """Peak memory of a few steps above the loaded model and optimiser, in MB, in a process of its own."""
    command = [sys.executable, __file__, "--memory", kind, str(batch), precision]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(json.loads(done.stdout.splitlines()[-1]))


def report_memory(kind: str, batch: int, precision: str) -> None:
    """Run in a process of its own: take steps on the same batches and print the peak."""
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(kind, batch, precision, Path(folder) / "run")
        epoch = [pairs for pairs in bench.trainer.sampler.epoch(0) if len(pairs) == batch][: STEPS[batch]]
        batches = grouped(bench.trainer, epoch, batch) if kind == "grouped" else epoch
        step = bench.ours if kind == "ours" else bench.usual
        step(batches[0][:1])  # makes the optimiser's state
        before = psutil.Process().memory_info().rss
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak is counted from here
        for pairs in batches:
            step(pairs)
        status = Path("/proc/self/status").read_text(encoding="ascii")
        peak = next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM"))
    print(json.dumps((peak - before) / 2**20))


def table(rows: list[dict[str, Any]], rounds: int) -> str:
    """The result as Markdown, ratios to the usual loop beside it."""
    facts = machine_facts()
    lines = [
        "# Training on a CPU: the usual HuggingFace loop against ours",
        "",
        f"`python benchmarks/train_cpu.py`. {facts['processor']}, {facts['threads']} threads, torch {facts['torch']},"
        f" teabert {facts['teabert']} at {facts['commit']}."
        " Encoder all-MiniLM-L6-v2; SST, Quora (8,490 rows), STS; pairs encoded apart;"
        f" {rounds} alternating rounds, and their range. Memory is the peak above model and optimiser.",
        "",
        "| batch | precision | loop | examples/s | range | against usual | against grouped | padded tokens | peak memory"
        " | against usual |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        same = [r for r in rows if (r["batch"], r["precision"]) == (row["batch"], row["precision"])]
        usual, grouped = (next(r for r in same if r["loop"] == name) for name in ("usual", "grouped"))
        lines.append(
            f"| {row['batch']} | {row['precision']} | {row['loop']} | {row['examples/s']:.1f}"
            f" | {row['lowest']:.1f}-{row['highest']:.1f}"
            f" | {row['examples/s'] / usual['examples/s']:.2f}x | {row['examples/s'] / grouped['examples/s']:.2f}x"
            f" | {row['padded/real tokens']:.2f}x | {in_memory(row['peak MB'], usual['peak MB'])} |"
        )
    return "\n".join(lines) + "\n"


def in_memory(mine: float | None, usual: float) -> str:
    """Two cells: the peak, and it over the usual one"""
    return "- | -" if mine is None else f"{mine:.0f} MB | {mine / usual:.2f}x"


def main() -> None:
    """Print the table, and write it where --out says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--batch", type=int, nargs="*", default=list(STEPS), choices=list(STEPS))
    parser.add_argument("--memory", nargs=3, metavar=("LOOP", "BATCH", "PRECISION"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.memory:
        report_memory(given.memory[0], int(given.memory[1]), given.memory[2])
        return
    rows = []
    for batch in given.batch:
        for precision in ("fp32", "bf16"):
            rows += measure(batch, precision, given.rounds, lambda text: print(text, file=sys.stderr, flush=True))
    print(table(rows, given.rounds))
    if given.out:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(table(rows, given.rounds), encoding="utf-8")
        given.out.with_suffix(".json").write_text(json.dumps({"machine": machine_facts(), "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
