"""What each injection, and task attention, adds to a training step; and a mixed batch of 8 tasks beside peft's.

    python benchmarks/methods.py [--sizes minilm base] [--rounds 11] [--out results/speed/methods.md]

Steps: SST, Quora and STS (TEABERT_DATA), 16 examples of mixed tasks, pairs encoded apart, forward, backward and AdamW, on
encoders of MiniLM's and BERT-base's size with random weights. The contenders take turns on the same batch; each round gives
one ratio to `none`, which runs before and after the others; the table has their median and quartiles. Arithmetic is counted
by torch's flop counter on the same batches, its median likewise: how many tokens a task's own layers read varies. The mixed
batch: LoRA of rank 8 on queries and values, equal weights on both sides, forward only.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from teabert.batches import Batch, Rows, collate
from teabert.config import Recipe, parse_recipe
from teabert.dataset import read_examples, tokenise
from teabert.encoder import Encoder, EncoderShape
from teabert.engine import Engine
from teabert.hub import encoder_folder
from teabert.injections import INJECTIONS, make_injection
from teabert.injections.lora import LoRA
from teabert.model import assemble
from teabert.pretrained import folder_shape, to_published
from teabert.runs import machine_facts
from teabert.sampling import Pairs, Sampler
from teabert.source import Source
from teabert.text import TextEncoder

BATCH = 16
TASKS = 8
TEXTS = 32
LAYERS = {"sst": 2, "quora": 1, "sts": 3}
"""Of task attention, as in its paper"""
GOALS = {"input": 1.03, "attention": 1.03, "projected": 1.05}
MIXED, PEFT_MIXED = "ours, one mixed batch", "peft, one mixed batch (adapter_names)"
MIXED_GOAL = 2.0
"""peft's mixed batch is to take so many times as long as ours."""


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def shapes() -> dict[str, EncoderShape]:
    """MiniLM's as it is, and BERT-base's with the same vocabulary."""
    small = folder_shape(encoder_folder("minilm", progress=False))
    base = replace(small, width=768, layers=12, attention_heads=12, inner_width=3072)
    return {"minilm": small, "base": base}


def recipe(injection: Any, attending: bool) -> Recipe:
    """The three tasks, read by their mean or by attention layers of their own."""

    def head(task: str, answer: str) -> dict[str, Any]:
        read: Any = {"method": "task_attention", "layers": LAYERS[task]} if attending else "mean"
        return {"read": read, "answer": answer}

    tasks = {"sst": {"head": head("sst", "linear")}}
    for name in ("quora", "sts"):
        tasks[name] = {"pair": "apart", "head": head(name, "difference")}  # type: ignore[dict-item]
    return parse_recipe(
        {
            "tasks": tasks,
            "injection": injection,
            "sampling": {"batch": BATCH},
            "train": {"precision": "fp32", "lr": 1e-9},
        }
    )


def batches(source: Source, count: int) -> list[Pairs]:
    """The first batches of an epoch"""
    plain = recipe("none", False)
    sampler = Sampler({name: len(rows) for name, rows in source.rows.items()}, plain.sampling, seed=1, epochs=1)
    return sampler.epoch(0)[:count]


def read() -> Source:
    """The training rows of the three tasks, as MiniLM's tokens"""
    plain, folder = recipe("none", False), encoder_folder("minilm", progress=False)
    shape = folder_shape(folder)
    text = TextEncoder.load(folder, shape.longest, shape.vocabulary)
    rows, _ = tokenise(text, plain.tasks, read_examples(plain).train)
    return Source(rows)


def steps(size: str, shape: EncoderShape, source: Source, rounds: int) -> list[dict[str, Any]]:
    """The ratios of every method to `none`, in time and in arithmetic."""
    torch.manual_seed(0)
    encoder = Encoder(shape)
    given = {name: recipe(name, False) for name in INJECTIONS} | {"task attention": recipe("none", True)}
    engines = {name: Engine(each, assemble(each, encoder), source) for name, each in given.items()}
    chosen = batches(source, rounds + 1)
    ratios: dict[str, list[float]] = {name: [] for name in engines if name != "none"}
    shares: dict[str, list[float]] = {name: [] for name in ratios}
    seconds = []
    for turn, pairs in enumerate(chosen):  # the first warms up
        order = list(np.random.default_rng(turn).permutation(list(ratios)))
        before = clock(engines["none"], pairs)
        spent = {name: clock(engines[name], pairs) for name in order}
        plain = (before + clock(engines["none"], pairs)) / 2
        if turn:
            seconds.append(plain)
            flops = {name: arithmetic(engine, pairs) for name, engine in engines.items()}
            for name in ratios:
                ratios[name].append(spent[name] / plain)
                shares[name].append(flops[name] / flops["none"])
        say(f"{size}: round {turn} of {rounds}, a step of none {plain:.2f} s")
    rows = []
    for name, found in ratios.items():
        low, middle, high = statistics.quantiles(found, n=4)
        rows.append(
            {
                "size": size,
                "method": name,
                "time": middle,
                "quartiles": [low, high],
                "arithmetic": statistics.median(shares[name]),
                "none_seconds": statistics.median(seconds),
            }
        )
    return rows


def arithmetic(engine: Engine, pairs: Pairs) -> int:
    """Floating-point operations of a step, forward and backward"""
    counter = FlopCounterMode(display=False)
    with counter:
        engine.backward(pairs, len(pairs))
    return counter.get_total_flops()


def clock(engine: Engine, pairs: Pairs) -> float:
    """Seconds of one step"""
    begun = time.perf_counter()
    engine.step([pairs], 0, 1e-9)
    return time.perf_counter() - begun


class Theirs:
    """peft's LoRA around HuggingFace's BertModel, with our weights."""

    def __init__(self, encoder: Encoder, lora: LoRA) -> None:
        import transformers
        from peft import LoraConfig, get_peft_model

        shape = encoder.shape
        config = transformers.BertConfig(
            vocab_size=shape.vocabulary,
            hidden_size=shape.width,
            num_hidden_layers=shape.layers,
            num_attention_heads=shape.attention_heads,
            intermediate_size=shape.inner_width,
            layer_norm_eps=shape.epsilon,
        )
        plain = transformers.BertModel(config)
        plain.load_state_dict(to_published(encoder.state_dict(), shape))
        options: dict[str, Any] = {
            "r": lora.rank,
            "lora_alpha": lora.scale * lora.rank,
            "target_modules": ["query", "value"],
        }
        self.model: Any = get_peft_model(plain, LoraConfig(**options), adapter_name=lora.tasks[0])
        for task in lora.tasks[1:]:
            self.model.add_adapter(task, LoraConfig(**options))
        blocks: Any = plain.encoder.layer  # peft has put its own layers into them
        with torch.no_grad():
            for layer in range(shape.layers):
                attention = blocks[layer].attention.self
                for place, part in enumerate((attention.query, attention.value)):
                    for task in lora.tasks:
                        down = lora.down[task][layer].chunk(2)[place]
                        part.lora_A[task].weight.copy_(down)
                        part.lora_B[task].weight.copy_(lora.up[task][layer, place])
        self.model.eval()

    def __call__(self, inputs: dict[str, torch.Tensor], names: list[str] | None) -> torch.Tensor:
        """(texts, tokens, width); names: each text's adapter, nothing for the one that is set"""
        more = {} if names is None else {"adapter_names": names}
        states: torch.Tensor = self.model(**inputs, **more).last_hidden_state
        return states


def padded(batch: Batch) -> dict[str, torch.Tensor]:
    """A packed batch as HuggingFace takes it"""
    lengths = torch.tensor(batch.layout.lengths)
    mask = torch.arange(int(lengths.max()))[None] < lengths[:, None]
    ids = torch.zeros(mask.shape, dtype=torch.long)
    ids[mask] = batch.ids
    return {"input_ids": ids, "attention_mask": mask.long()}


def mixed(size: str, shape: EncoderShape, source: Source, rounds: int) -> list[dict[str, Any]]:
    """32 texts of 8 tasks, four each: ours and peft's, in one batch and in eight."""
    torch.manual_seed(0)
    names = [f"task{number}" for number in range(TASKS)]
    encoder = Encoder(shape).eval()
    lora = make_injection("lora", shape, names)
    assert isinstance(lora, LoRA), "lora"
    for parameter in lora.parameters():
        nn.init.normal_(parameter, std=0.02)
    theirs, sst = Theirs(encoder, lora), source.rows["sst"]
    picked = np.random.default_rng(0).choice(len(sst), TEXTS, replace=False)
    rows = [replace_task(sst, name) for name in names]
    chosen = [(rows[place % TASKS], int(row)) for place, row in enumerate(picked)]
    whole = collate(chosen, names)
    apart = [collate([pair for pair in chosen if pair[0].task == name], names) for name in names]
    of = [names[task] for task in whole.task_of_sequence.tolist()]
    inputs, each_input = padded(whole), [padded(batch) for batch in apart]

    def their_batches() -> None:
        for name, mine in zip(names, each_input, strict=True):
            theirs.model.set_adapter(name)
            theirs(mine, None)

    contenders: dict[str, Callable[[], Any]] = {
        MIXED: lambda: encoder(whole, lora),
        "ours, 8 batches of one task": lambda: [encoder(batch, lora) for batch in apart],
        PEFT_MIXED: lambda: theirs(inputs, of),
        "peft, 8 batches of one task (set_adapter)": their_batches,
    }
    with torch.inference_mode():
        difference = (theirs(inputs, of)[inputs["attention_mask"].bool()] - encoder(whole, lora)).abs().max().item()
        assert difference < 1e-3, f"both sides must answer alike, they differ by {difference}"
        spent: dict[str, list[float]] = {name: [] for name in contenders}
        for turn in range(rounds + 2):  # two warm up
            for name, run in contenders.items():
                begun = time.perf_counter()
                run()
                if turn > 1:
                    spent[name].append(time.perf_counter() - begun)
    ours = spent[MIXED]
    made = []
    for name, found in spent.items():
        low, middle, high = statistics.quantiles([mine / base for mine, base in zip(found, ours, strict=True)], n=4)
        facts = {"size": size, "contender": name, "seconds": statistics.median(found), "time": middle}
        made.append(facts | {"quartiles": [low, high], "difference": difference})
    say(f"{size}: mixed batches done")
    return made


def replace_task(rows: Rows, task: str) -> Rows:
    return replace(rows, task=task)


def report(found: list[dict[str, Any]], against: list[dict[str, Any]], rounds: int) -> str:
    """Both tables as Markdown."""
    facts = machine_facts()
    lines = [
        "# What the methods cost",
        "",
        f"`python benchmarks/methods.py`. {facts['processor']}, {facts['threads']} threads, torch {facts['torch']}, fp32,"
        f" teabert {facts['teabert']} at {facts['commit']}. Random weights, token lengths of SST, Quora and STS;"
        f" {rounds} rounds, median and quartiles.",
        "",
        f"## A training step, {BATCH} examples of mixed tasks, relative to `none`",
        "",
        "| size | method | time | quartiles | arithmetic | goal |",
        "|---|---|---|---|---|---|",
    ]
    for row in found:
        goal = GOALS.get(row["method"])
        if row["method"] == "task attention" and row["size"] == "base":
            goal = row["arithmetic"] + 0.03
        met = "" if goal is None else f"{goal:.2f}: {'met' if row['time'] <= goal else 'missed'}"
        low, high = row["quartiles"]
        lines.append(
            f"| {row['size']} | {row['method']} | {row['time']:.3f}x | {low:.3f}-{high:.3f}"
            f" | {row['arithmetic']:.3f}x | {met} |"
        )
    for size in dict.fromkeys(row["size"] for row in found):
        seconds = next(row["none_seconds"] for row in found if row["size"] == size)
        lines.append(f"\nA step of `none`, {size}: {seconds:.3f} s.")
    lines += [
        "",
        f"## {TEXTS} texts of {TASKS} tasks, LoRA of rank 8, forward only, relative to our mixed batch",
        "",
        "| size | contender | seconds | time | quartiles | goal |",
        "|---|---|---|---|---|---|",
    ]
    for row in against:
        low, high = row["quartiles"]
        met = f"{MIXED_GOAL:.2f}: {'met' if row['time'] >= MIXED_GOAL else 'missed'}" * (row["contender"] == PEFT_MIXED)
        cells = row["size"], row["contender"], f"{row['seconds']:.3f}", f"{row['time']:.2f}x", f"{low:.2f}-{high:.2f}", met
        lines.append(f"| {' | '.join(cells)} |")
    worst = max(row["difference"] for row in against)
    return "\n".join([*lines, "", f"Both sides' states differ by at most {worst:.1e}.", ""])


def main() -> None:
    """Print the tables, and write them where --out says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=["minilm", "base"], choices=["minilm", "base"])
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    if given.rounds < 2:
        parser.error("--rounds must be at least 2: one round has no spread")
    source, known = read(), shapes()
    against = [row for size in given.sizes for row in mixed(size, known[size], source, given.rounds)]
    found = [row for size in given.sizes for row in steps(size, known[size], source, given.rounds)]
    text = report(found, against, given.rounds)
    print(text)
    if given.out:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(text, encoding="utf-8")
        content = {"machine": machine_facts(), "steps": found, "mixed": against}
        given.out.with_suffix(".json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
