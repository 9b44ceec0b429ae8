"""The Predictor on a GPU: texts in, answers out, against HuggingFace pipelines, one for each task, on the same texts.

    python benchmarks/predict_gpu.py [--out results/speed/predict_gpu.md] [--texts 6000] [--rounds 3]

A model of BERT-base's size with random weights and heads that nobody trained (they cost the same), dev texts of SST, Quora
and STS (TEABERT_DATA), pairs read together, bf16, everything counted from strings to answers. Ours mixes the three tasks
in every batch; a pipeline gets its task's texts sorted by length, 256 at a time. Then what one request takes: one text, 32
mixed ones, one text under one task and under 32. Takes about half a minute on an H200.
"""

import argparse
import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from serve import make_run, many
from train_gpu import BASE, random_encoder

from teabert.config import Recipe, parse_recipe
from teabert.device import pick_device
from teabert.hub import encoder_folder
from teabert.predictor import Predictor, load
from teabert.progress import Quiet
from teabert.requests import Request
from teabert.runs import machine_facts
from teabert.tasks import Task

BATCH = 256
"""Texts at a time of a pipeline"""
MANY = 32
Contender = Callable[[Sequence[Request]], object]
INJECTIONS = ("none", "attention", "lora")


def recipe(encoder: Path, injection: str) -> Recipe:
    """Three real tasks."""
    given = {"encoder": str(encoder), "tasks": ["sst", "quora", "sts"], "injection": injection}
    return parse_recipe(given | {"train": {"precision": "bf16"}})


def different_texts(predictor: Predictor, count: int) -> list[Request]:
    """Dev rows of all tasks, a third each as far as they go, shuffled; none twice: that would be read once"""
    found: list[Request] = []
    for left, task in zip((3, 2, 1), sorted(predictor.tasks.values(), key=_rows), strict=True):
        texts = dict.fromkeys(each.texts for each in predictor.read_split(task, "dev", Quiet()))
        mine = random.Random(11711).sample([*texts], min(len(texts), (count - len(found)) // left))
        found += [Request(task.name, texts[0] if len(texts) == 1 else texts) for texts in mine]
    random.Random(0).shuffle(found)
    return found


def _rows(task: Task) -> int:
    """Quora has by far the most"""
    return int(task.name == "quora")


class Pipelines:
    """What a user has today: a model and a pipeline for each task."""

    def __init__(self, encoder: Path, predictor: Predictor, device: torch.device) -> None:
        from transformers import (
            AutoConfig,
            AutoModelForSequenceClassification,
            AutoTokenizer,
            TextClassificationPipeline,
            logging,
        )

        logging.set_verbosity_error()
        tokenizer = AutoTokenizer.from_pretrained(encoder)
        self.pipelines = {}
        for name, task in predictor.tasks.items():
            config = AutoConfig.from_pretrained(encoder, num_labels=task.outputs)
            model = AutoModelForSequenceClassification.from_config(config).to(device, torch.bfloat16).eval()
            self.pipelines[name] = TextClassificationPipeline(
                model=model, tokenizer=tokenizer, device=device, top_k=None, batch_size=BATCH
            )

    def __call__(self, requests: Sequence[Request]) -> None:
        """All of them, task by task, those of like length together"""
        for name, pipeline in self.pipelines.items():
            texts = [request.text for request in requests if request.task == name]
            texts.sort(key=lambda text: sum(map(len, text)) if isinstance(text, tuple) else len(text))
            given = [text if isinstance(text, str) else {"text": text[0], "text_pair": text[1]} for text in texts]
            if given:
                pipeline(given, truncation=True, max_length=512)


def seconds(work: Callable[[], object]) -> float:
    """How long; answers are on the processor when it ends, so nothing is left to wait for"""
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def throughput(contenders: dict[str, Contender], requests: Sequence[Request], rounds: int) -> Any:
    """Texts a second of every contender, in alternating rounds."""
    found: dict[str, list[float]] = {}
    memory: dict[str, float] = {}
    for contender in contenders.values():
        contender(requests)  # warms up
    for _ in range(rounds):
        for name, contender in contenders.items():
            before = _reset_peak()
            found.setdefault(name, []).append(len(requests) / seconds(partial(contender, requests)))
            memory[name] = _peak() - before
    usual = statistics.median(found["pipelines"])
    for name, speeds in found.items():
        middle = statistics.median(speeds)
        row = {"contender": name, "texts": len(requests), "texts/s": middle}
        row |= {"range": f"{min(speeds):,.0f}-{max(speeds):,.0f}"}
        yield row | {"against pipelines": f"{middle / usual:.2f}x", "memory above weights, MB": memory[name]}


def latency(contenders: dict[str, Contender], requests: Sequence[Request], size: int) -> Any:
    """Milliseconds of a request of so many mixed texts."""
    for name, contender in contenders.items():
        for start in range(0, 10 * size, size):
            contender(requests[start : start + size])
        each = [1000 * seconds(partial(contender, requests[start : start + size])) for start in range(0, 60 * size, size)]
        each.sort()
        yield {"contender": name, "texts": size, "p50 ms": statistics.median(each), "p95 ms": each[int(0.95 * len(each))]}


def same_text(predictor: Predictor) -> dict[str, Any]:
    """One text under one task and under many, in turns."""
    text = "The harbour was quiet, and the boats that had left at dawn were not back yet when the fog came in."
    names = {1: list(predictor.tasks)[:1], MANY: list(predictor.tasks)}
    found: dict[int, list[float]] = {1: [], MANY: []}
    for number in range(60):
        for count, tasks in names.items():
            spent = seconds(partial(predictor.predict, text, tasks=tasks))
            found[count] += [1000 * spent] if number >= 10 else []
    one, all_of_them = (statistics.median(found[count]) for count in (1, MANY))
    return {"1 task, ms": one, f"{MANY} tasks, ms": all_of_them, "ratio": f"{all_of_them / one:.2f}x"}


def _reset_peak() -> float:
    if not torch.cuda.is_available():
        return 0.0
    torch.cuda.reset_peak_memory_stats()
    return torch.cuda.memory_allocated() / 2**20


def _peak() -> float:
    return torch.cuda.max_memory_allocated() / 2**20 if torch.cuda.is_available() else 0.0


def measure(encoder: Path, work: Path, count: int, rounds: int) -> dict[str, list[dict[str, Any]]]:
    """All parts."""
    device = pick_device(None)
    loaded = {name: load(make_run(work / name, recipe(encoder, name))) for name in INJECTIONS}
    plain = loaded["none"]
    requests = different_texts(plain, count)
    contenders: dict[str, Contender] = {"pipelines": Pipelines(encoder, plain, device)}
    contenders |= {f"teabert, injection {name}": predictor.answers for name, predictor in loaded.items()}
    found = {"many": list(throughput(contenders, requests, rounds))}
    few = (requests * 60)[: 60 * 32]
    found["few"] = [row for size in (1, 32) for row in latency(contenders, few, size)]
    wide = parse_recipe(many(MANY).model_dump() | {"encoder": str(encoder)})
    found["same"] = [same_text(load(make_run(work / "wide", wide), precision="bf16"))]
    return found


def table(found: dict[str, list[dict[str, Any]]], rounds: int) -> str:
    """The result as Markdown."""
    facts = machine_facts()
    titles = {
        "many": "All texts of three tasks at hand",
        "few": "One request at a time",
        "same": f"One text under 1 and under {MANY} tasks (injection none)",
    }
    lines = [
        "# The Predictor on a GPU",
        "",
        f"`python benchmarks/predict_gpu.py`. {facts['gpu'] or facts['processor']}, torch {facts['torch']}, teabert"
        f" {facts['teabert']} at {facts['commit']}. BERT-base's size, random weights, bf16; SST, Quora, STS dev texts from"
        f" strings to answers; medians of {rounds} alternating rounds and their range. Pipelines: transformers, one a task,"
        f" texts sorted by length, {BATCH} at a time.",
    ]
    for key, rows in found.items():
        lines += ["", f"## {titles[key]}", "", f"| {' | '.join(rows[0])} |", "|" + "---|" * len(rows[0])]
        lines += [f"| {' | '.join(_shown(cell) for cell in row.values())} |" for row in rows]
    return "\n".join(lines) + "\n"


def _shown(value: object) -> str:
    return f"{value:,.1f}" if isinstance(value, float) else str(value)


def main() -> None:
    """Print the tables, and write them where --out says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--texts", type=int, default=6000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--layers", type=int, default=12, help="fewer, to try it without a GPU")
    parser.add_argument("--tokenizer", default="minilm", help="an encoder whose vocabulary is BERT's")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = Path(given.tokenizer) if Path(given.tokenizer).is_dir() else encoder_folder(given.tokenizer)
        encoder = random_encoder(BASE | {"num_hidden_layers": given.layers}, tokenizer, Path(folder) / "base")
        found = measure(encoder, Path(folder), given.texts, given.rounds)
    shown = table(found, given.rounds)
    print(shown)
    if given.out:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(shown, encoding="utf-8")
        given.out.with_suffix(".json").write_text(json.dumps({"machine": machine_facts()} | found, indent=2) + "\n")


if __name__ == "__main__":
    main()
