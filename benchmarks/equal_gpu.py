"""That fast steps learn what plain ones learn, on a GPU: losses step by step without dropout, dev scores with it.

    python benchmarks/equal_gpu.py [--encoder minilm] [--out results/speed/equal_gpu.md]

Recorded steps with our kernels in bf16, the same unrecorded, torch's own operators in bf16 and in fp32, on the same 300
batches of the three tasks (TEABERT_DATA). Then three seeds with dropout, recorded and with torch's own operators.
"""

import argparse
import csv
import json
import tempfile
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import torch
from scipy.stats import ttest_ind

from teabert.config import load_recipe
from teabert.encoder import Block
from teabert.evaluation import evaluate
from teabert.kernels import without_kernels
from teabert.progress import Quiet
from teabert.runs import machine_facts
from teabert.training import Trainer

STEPS = 300
SEEDS = 3
RATE = 3e-5


def begin(encoder: str, folder: Path, seed: int = 11711, **train: Any) -> Trainer:
    """A new run of the three tasks, read off the mean"""
    changes = [f"train.{key}={str(value).lower()}" for key, value in (train | {"seed": seed}).items()]
    reads = [f"tasks.{task}.head.read=mean" for task in ("sst", "quora", "sts")]
    sampling = ["sampling.strategy=proportional", f"encoder={encoder}"]
    return Trainer.begin(load_recipe("all-baseline", [*changes, *reads, *sampling]), folder, Quiet())


def calm(trainer: Trainer) -> Trainer:
    """No dropout anywhere"""
    for module in trainer.model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        if isinstance(module, Block):
            module.shape = replace(module.shape, attention_dropout=0.0)
    return trainer


def learn(trainer: Trainer) -> list[float]:
    """The mean loss of every step"""
    found = []
    for pairs in trainer.sampler.epoch(0)[:STEPS]:
        losses, _ = trainer.learn([pairs], RATE)
        trainer.place.step += 1
        found.append(torch.stack([loss.summed.detach() for loss in losses]).sum() / len(pairs))
    return [float(loss) for loss in found]


def curves(encoder: str, folder: Path) -> dict[str, list[float]]:
    """The losses of each way, step by step"""
    ways: dict[str, tuple[dict[str, Any], bool]] = {
        "recorded bf16": ({"precision": "bf16"}, False),
        "unrecorded bf16": ({"precision": "bf16", "record": False}, False),
        "torch bf16": ({"precision": "bf16", "record": False}, True),
        "recorded fp32": ({"precision": "fp32"}, True),
        "torch fp32": ({"precision": "fp32", "record": False}, True),
    }
    found = {}
    for name, (train, plain) in ways.items():
        with without_kernels() if plain else nullcontext():
            found[name] = learn(calm(begin(encoder, folder / name.replace(" ", "-"), **train)))
        print(name, found[name][-1], flush=True)
    return found


def scores(encoder: str, folder: Path) -> list[dict[str, Any]]:
    """Dev scores after as many steps with dropout"""
    found = []
    for name, plain in (("recorded bf16", False), ("torch bf16", True)):
        for seed in range(SEEDS):
            with without_kernels() if plain else nullcontext():
                run = folder / f"{name.replace(' ', '-')}-{seed}"
                trainer = begin(encoder, run, 11711 + seed, precision="bf16", record=not plain)
                learn(trainer)
                judged = evaluate(trainer.model, trainer.tasks, trainer.select, "bf16")
            main = {task: next(iter(metrics.values())) for task, metrics in judged.tasks.items()}
            found.append({"way": name, "seed": 11711 + seed, **main})
            print(json.dumps(found[-1]), flush=True)
    return found


def report(encoder: str, losses: dict[str, list[float]], judged: list[dict[str, Any]]) -> str:
    """Both as Markdown"""
    facts, base = machine_facts(), losses["torch fp32"]
    lines = [
        "# Fast steps learn what plain ones learn",
        "",
        f"`python benchmarks/equal_gpu.py --encoder {encoder}`. {facts['gpu']}, torch {facts['torch']}. {STEPS} steps,"
        f" batch 16, lr {RATE}; differences are relative to the loss of torch's operators in fp32 at the same step.",
        "",
        "| without dropout | largest | mean | of the mean loss over all steps | last ten steps |",
        "|---|---|---|---|---|",
    ]
    for name, mine in losses.items():
        each = [abs(a - b) / b for a, b in zip(mine, base, strict=True)]
        whole, last = (abs(fmean(mine[-count:]) / fmean(base[-count:]) - 1) for count in (STEPS, 10))
        lines.append(f"| {name} | {max(each):.1e} | {fmean(each):.1e} | {whole:.1e} | {last:.1e} |")
    pair = [abs(a - b) / b for a, b in zip(losses["recorded bf16"], losses["unrecorded bf16"], strict=True)]
    lines += ["", f"Recorded against unrecorded, bf16: largest {max(pair):.1e}.", ""]
    tasks = [key for key in judged[0] if key not in ("way", "seed")]
    ways = list(dict.fromkeys(row["way"] for row in judged))
    found = {way: {task: [row[task] for row in judged if row["way"] == way] for task in tasks} for way in ways}
    lines += [f"| with dropout, dev | {' | '.join(tasks)} |", "|" + "---|" * (len(tasks) + 1)]
    for way, scores in found.items():
        cells = [f"{fmean(mine):.4f} ± {stdev(mine):.4f}" for mine in scores.values()]
        lines.append(f"| {way}, {SEEDS} seeds | {' | '.join(cells)} |")
    chances = [ttest_ind(*(scores[task] for scores in found.values()), equal_var=False).pvalue for task in tasks]
    lines.append(f"| Welch's t test: p | {' | '.join(f'{chance:.2f}' for chance in chances)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Print the report, and write it and all losses where --out says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        losses = curves(given.encoder, Path(folder))
        judged = scores(given.encoder, Path(folder))
    text = report(Path(given.encoder).name, losses, judged)
    print(text)
    if given.out:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(text, encoding="utf-8")
        with given.out.with_suffix(".csv").open("w", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["step", *losses])
            writer.writerows(
                [step, *(f"{loss:.6f}" for loss in row)] for step, row in enumerate(zip(*losses.values(), strict=True))
            )


if __name__ == "__main__":
    main()
