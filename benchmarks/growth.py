"""What an example costs against the number of tasks and the length of texts, in training and in prediction.

    python benchmarks/growth.py [--out results/speed/growth.md] [--rounds 3] [--methods none attention lora ...]

Every batch mixes its tasks evenly. Tasks: texts of 32 tokens, 3, 8 or 32 tasks. Length: 4 tasks, texts of 16 to 512
tokens, a constant number of tokens a batch as long as each task has an example. Random weights: those of MiniLM's shape
on a CPU, of BERT-base's on a GPU, where training steps are recorded. Training is the real step (forward, backward, AdamW,
dropout on); prediction is packing and the forward pass. The methods take turns; the table has the medians of the rounds.
Beside --out lie the numbers as JSON, and the figure as SVG and PNG.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from train_gpu import BASE

from teabert.batches import Rows
from teabert.capturing import Recorder, why_not
from teabert.config import Recipe, parse_recipe
from teabert.device import autocast, describe, pick_device, pick_precision
from teabert.encoder import Encoder, EncoderShape
from teabert.engine import Engine
from teabert.experiments.figures import COLOURS, LOOKS, MARKERS
from teabert.hub import encoder_folder
from teabert.model import assemble
from teabert.pretrained import folder_shape, read_shape
from teabert.runs import machine_facts
from teabert.sampling import Pairs
from teabert.source import Source

METHODS = ("none", "input", "attention", "projected", "activated", "gate", "lora", "adapter")
GROWING = ("lora", "adapter")
"""For contrast: each task's tokens pass matrices of its own"""
TASKS = (3, 8, 32)
LENGTHS = (16, 32, 64, 128, 256, 512)
SHORT, SOME = 32, 4
"""The length where tasks grow, and the tasks where the length grows"""
Row = dict[str, Any]


@dataclass(frozen=True)
class Work:
    """Batches of one kind: so many examples of so many tokens, spread over so many tasks."""

    axis: str
    tasks: int
    length: int
    examples: int


def works(tokens: int) -> list[Work]:
    """Everything that is measured, with so many tokens a batch where a batch of them has an example of every task"""
    by_tasks = [Work("tasks", tasks, SHORT, tokens // SHORT) for tasks in TASKS]
    return by_tasks + [Work("length", SOME, length, max(SOME, tokens // length)) for length in LENGTHS]


def recipe(method: str, tasks: int, precision: str) -> Recipe:
    """So many tasks of two classes each"""
    task = {"texts": "text", "label": "label", "kind": "classes", "labels": ["no", "yes"], "files": "{split}.csv"}
    given = {f"task{number}": task | {"head": {"read": "mean"}} for number in range(tasks)}
    return parse_recipe({"tasks": given, "injection": method, "train": {"precision": precision, "lr": 1e-9}})


def source(work: Work, vocabulary: int) -> Source:
    """Random texts of one length, enough of every task"""
    draw = np.random.default_rng(0)

    def rows(name: str) -> Rows:
        count = -(-work.examples // work.tasks)
        texts = [draw.integers(1000, vocabulary, work.length) for _ in range(count)]
        labels = draw.integers(0, 2, count).astype(np.float32)
        return Rows(name, (texts,), None, labels, tuple(map(str, range(count))))

    return Source({name: rows(name) for name in (f"task{number}" for number in range(work.tasks))})


class Contender:
    """One method at one kind of work."""

    def __init__(self, method: str, work: Work, encoder: Encoder, precision: str) -> None:
        given = recipe(method, work.tasks, precision)
        self.model, self.precision = assemble(given, encoder).to(next(encoder.parameters()).device), precision
        self.source = source(work, encoder.shape.vocabulary)
        self.engine = Engine(given, self.model, self.source)
        self.pairs: Pairs = np.array([(number % work.tasks, number // work.tasks) for number in range(work.examples)])
        recorded = why_not(self.engine, False, 1) is None
        self.recorder = Recorder(self.engine, work.examples) if recorded else None

    def train(self) -> None:
        """One step"""
        if self.recorder is None:
            self.engine.step([self.pairs], 0, 1e-9)
        else:
            self.engine.set_modes()
            self.engine.set_rate(1e-9)
            self.recorder.step(self.pairs, 0)

    def predict(self) -> None:
        """The answers of one batch"""
        self.model.eval()
        with torch.inference_mode(), autocast(self.precision, self.model.device):
            self.model(self.source.batch(self.pairs).to(self.model.device))


def seconds(run: Callable[[], None], times: int, device: torch.device) -> float:
    """Of one call, from a quiet device to a quiet device"""
    wait = torch.cuda.synchronize if device.type == "cuda" else nullcontext
    wait()
    begun = time.perf_counter()
    for _ in range(times):
        run()
    wait()
    return (time.perf_counter() - begun) / times


def measure(methods: tuple[str, ...], shape: EncoderShape, device: torch.device, rounds: int) -> Iterator[Row]:
    """Milliseconds an example of every method at every kind of work"""
    torch.manual_seed(0)
    encoder = Encoder(shape).to(device)
    precision, gpu = pick_precision("auto", device), device.type == "cuda"
    for work in works(4096 if gpu else 1024):
        contenders = {method: Contender(method, work, encoder, precision) for method in methods}
        for kind in ("training", "prediction"):
            spent: dict[str, list[float]] = {method: [] for method in methods}
            calls = {method: each.train if kind == "training" else each.predict for method, each in contenders.items()}
            for turn in range(-1, rounds):
                for method in np.random.default_rng(turn + 1).permutation(list(methods)).tolist():
                    if turn < 0:  # warms up; on a GPU the second step of a shape is recorded
                        seconds(calls[method], 3 if gpu else 1, device)
                    else:
                        spent[method].append(seconds(calls[method], 10 if gpu else 1, device) * 1000 / work.examples)
            for method, found in spent.items():
                yield {
                    **vars(work), "kind": kind, "method": method,
                    "ms": statistics.median(found), "lowest": min(found), "highest": max(found),
                }  # fmt: skip
        print(f"{work.tasks} tasks, {work.length} tokens: measured", file=sys.stderr, flush=True)


def report(rows: list[Row], facts: dict[str, Any], device: torch.device, rounds: int) -> str:
    """The result as Markdown"""
    precision, gpu = pick_precision("auto", device), device.type == "cuda"
    lines = [
        "# What an example costs as tasks and texts grow",
        "",
        f"`python benchmarks/growth.py`. {describe(device) if gpu else facts['processor']}, {facts['threads']} threads,"
        f" torch {facts['torch']}, teabert {facts['teabert']} at {facts['commit']}."
        f" {'BERT-base' if gpu else 'MiniLM'}'s shape, random weights, {precision};"
        f" milliseconds an example, medians of {rounds} rounds.",
    ]
    for kind in ("training", "prediction"):
        for axis in ("tasks", "length"):
            mine = [row for row in rows if (row["kind"], row["axis"]) == (kind, axis)]
            places = sorted({row[axis] for row in mine})
            what = f"by number of tasks, {SHORT} tokens each" if axis == "tasks" else f"by tokens, {SOME} tasks"
            last = [f"{places[-1]} / {places[0]}"] if axis == "tasks" else []
            heads = ["method", *map(str, places), *last]
            lines += ["", f"## {kind}, {what}", "", f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
            for method in dict.fromkeys(row["method"] for row in mine):
                found = {row[axis]: row["ms"] for row in mine if row["method"] == method}
                cells = [_shown(found[place]) for place in places]
                cells += [f"{found[places[-1]] / found[places[0]]:.2f}x"] if last else []
                lines.append(f"| {method} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _shown(milliseconds: float) -> str:
    """Three digits, whole numbers from a hundred on"""
    return f"{milliseconds:.0f}" if milliseconds >= 100 else f"{milliseconds:.3g}"


def draw(rows: list[Row], title: str, to: Path) -> None:
    """The figure, on white so that it is read on a dark page too"""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(LOOKS):
        canvas = Figure(figsize=(9, 6.4), layout="constrained", facecolor="white")
        panels = canvas.subplots(2, 2)
        for line, kind in zip(panels, ("training", "prediction"), strict=True):
            for panel, axis in zip(line, ("tasks", "length"), strict=True):
                _lines(panel, [row for row in rows if (row["kind"], row["axis"]) == (kind, axis)], axis)
                panel.set_title(f"{kind}, ms an example", loc="left", fontsize=9)
        panels[0, 0].legend(frameon=False, ncols=2, fontsize=8, loc="upper left")
        canvas.suptitle(title, fontsize=11, x=0.01, ha="left")
        for kind in ("svg", "png"):
            canvas.savefig(to.with_suffix(f".{kind}"), dpi=150, metadata={"Date": None} if kind == "svg" else None)


def _lines(panel: Any, rows: list[Row], axis: str) -> None:
    methods = list(dict.fromkeys(row["method"] for row in rows))
    places = sorted({row[axis] for row in rows})
    for number, method in enumerate(methods):
        points = sorted((row[axis], row["ms"]) for row in rows if row["method"] == method)
        colour = "#222222" if method == "none" else COLOURS[number % len(COLOURS)]
        dashes = "--" if method in GROWING else "-"
        panel.plot(*zip(*points, strict=True), dashes, color=colour, marker=MARKERS[number % 6], markersize=4, label=method)
    panel.set_xscale("log", base=2)
    panel.set_xticks(places, [str(place) for place in places])
    panel.minorticks_off()
    panel.set_xlabel("tasks in a batch" if axis == "tasks" else "tokens of a text")
    if axis == "length":
        panel.set_yscale("log")
        panel.yaxis.set_major_formatter(lambda value, place: f"{value:g}")
    else:
        panel.set_ylim(0, max(row["ms"] for row in rows) * 1.45)
    panel.grid(axis="y", color="#DDDDDD", linewidth=0.6)
    panel.spines[["top", "right"]].set_visible(False)


def main() -> None:
    """Print the table, and write it with its figure where --out says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    given = parser.parse_args()
    device, facts = pick_device(), machine_facts()
    on_gpu = device.type == "cuda"
    shape = read_shape(BASE, "BERT-base") if on_gpu else folder_shape(encoder_folder("minilm", progress=False))
    rows: list[Row] = []
    for row in measure(tuple(given.methods), shape, device, given.rounds):
        rows.append(row)
        if given.out:  # after every number: a lent machine may be taken away
            given.out.parent.mkdir(parents=True, exist_ok=True)
            content = {"machine": facts, "rows": rows}
            given.out.with_suffix(".json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    text = report(rows, facts, device, given.rounds)
    print(text)
    if given.out:
        given.out.write_text(text, encoding="utf-8")
        where = f"{'BERT-base' if on_gpu else 'MiniLM'}'s size, {describe(device)}"
        draw(rows, f"What an example costs as tasks and texts grow ({where})", given.out)


if __name__ == "__main__":
    main()
