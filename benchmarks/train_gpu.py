"""Training and evaluation speed on a GPU: what a HuggingFace user has against ours, in one process on the same batches.

    python benchmarks/train_gpu.py [--out results/speed/train_gpu.md] [--encoder FOLDER] [--only batch-16 run ...]

BERT-base with random weights (or the encoder given), the lengths of the three real tasks (TEABERT_DATA), the papers'
recipe: pairs encoded apart, one task a batch, dropout on, AdamW each step. `usual` pads each batch to its longest text and
runs eagerly; `compiled` is the fastest we could make HuggingFace's model: torch.compile with the fused AdamW and lengths
padded to 32 or 64, at batch 16 with mode="reduce-overhead", which records CUDA graphs. Memory is the peak above weights,
gradients and optimiser.
"""

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable
from multiprocessing import get_context
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from teabert.batches import Rows
from teabert.config import Recipe, load_recipe
from teabert.device import autocast
from teabert.encoder import Encoder
from teabert.evaluation import outputs
from teabert.experiments.sharing_gpu import shared_gpu
from teabert.hub import encoder_folder
from teabert.losses import make_loss
from teabert.pretrained import read_shape, to_published
from teabert.progress import Quiet
from teabert.runs import machine_facts
from teabert.source import Source
from teabert.training import Trainer

BASE = {
    "model_type": "bert",
    "vocab_size": 30522,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
    "hidden_act": "gelu",
    "pad_token_id": 0,
}
MPNET = BASE | {"model_type": "mpnet", "vocab_size": 30527, "max_position_embeddings": 514, "pad_token_id": 1}
MPNET |= {"layer_norm_eps": 1e-5, "relative_attention_num_buckets": 32}
BYTES, FLOPS = 4.3e12, 790e12
"""What this machine's H200 moves and multiplies in a second, measured by a large copy and a large bf16 product"""
STEPS = {"usual": 30, "compiled": 120, "ours": 400}
ROUNDS = 3
TOGETHER = 8
SHARES = (100, 50, 25)
"""The part of the GPU, in percent, that each of them may take"""
PARTS = ("batch-16", "batch-256", "mpnet", "evaluation", "together", "run", "compiled", "kernels")
PROFILED = 60
"""steps"""


def random_encoder(config: dict[str, Any], tokenizer: Path, into: Path) -> Path:
    """A folder in HuggingFace's layout with random weights."""
    from safetensors.torch import save_file

    into.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    shape = read_shape(config, "random")
    save_file(to_published(Encoder(shape).state_dict(), shape), into / "model.safetensors", {"format": "pt"})
    (into / "config.json").write_text(json.dumps(config))
    for file in tokenizer.glob("*token*.json"):
        shutil.copy(file, into)
    shutil.copy(tokenizer / "vocab.txt", into)
    return into


def recipe(encoder: Path, batch: int, *changes: str) -> Recipe:
    """TEA-BERT's recipe, tasks in proportion."""
    given = [f"encoder={encoder}", f"sampling.batch={batch}", "sampling.strategy=proportional", "train.precision=bf16"]
    return load_recipe("all-baseline", [*given, *changes])


def ready(given: Recipe) -> Trainer:
    """A run of ours, ready to learn; nothing of it stays on disk"""
    with tempfile.TemporaryDirectory() as folder:
        return Trainer.begin(given, Path(folder) / "run", Quiet())


def our_step(trainer: Trainer) -> Callable[[Any], None]:
    """A run's next step, on a batch of these rows"""

    def step(pairs: Any) -> None:
        trainer.learn([pairs], 1e-5)
        trainer.place.step += 1

    return step


class Usual(nn.Module):
    """What a user writes today: HuggingFace's model on padded batches, both texts of a pair in one call."""

    def __init__(self, recipe: Recipe, lengths: tuple[int, ...] = ()) -> None:
        from transformers import AutoConfig, AutoModel

        super().__init__()
        folder = encoder_folder(recipe.encoder)
        self.tasks, self.lengths = recipe.tasks, lengths
        self.encoder = AutoModel.from_config(AutoConfig.from_pretrained(folder))
        width = self.encoder.config.hidden_size
        self.dropout = nn.Dropout(0.3)
        self.heads = nn.ModuleDict(
            {name: nn.Linear(width * task.sequences, task.outputs) for name, task in self.tasks.items()}
        )
        self.read: Callable[..., Tensor] = self._read

    def _read(self, ids: Tensor, mask: Tensor) -> Tensor:
        pooled: Tensor = self.encoder(input_ids=ids, attention_mask=mask).pooler_output
        return pooled

    def pad(self, rows: Rows, picked: list[int]) -> tuple[Tensor, Tensor]:
        """Ids and mask of a batch, on the GPU"""
        texts = [column[row] for column in rows.sequences for row in picked]
        longest = max(len(ids) for ids in texts)
        longest = next((length for length in self.lengths if length >= longest), longest)
        ids = np.zeros((len(texts), longest), dtype=np.int64)
        for place, each in enumerate(texts):
            ids[place, : len(each)] = each
        on = torch.from_numpy(ids).pin_memory().cuda(non_blocking=True)
        return on, (on != 0).long()

    def forward(self, rows: Rows, picked: list[int]) -> Tensor:
        """One task's outputs"""
        pooled = self.dropout(self.read(*self.pad(rows, picked)))
        outputs: Tensor = self.heads[rows.task](torch.cat(pooled.chunk(len(rows.sequences)), -1))
        return outputs

    def loss(self, rows: Rows, picked: list[int]) -> Tensor:
        """The mean loss of one task's rows"""
        labels = torch.from_numpy(rows.labels[picked]).cuda(non_blocking=True)
        return make_loss(self.tasks[rows.task].loss_choice)(self(rows, picked).float(), labels).mean()


class Loop:
    """The usual training loop."""

    def __init__(self, recipe: Recipe, source: Source, precision: str, compiled: bool = False) -> None:
        self.source, self.precision = source, precision
        self.model = Usual(recipe, (32, 64) if compiled else ()).cuda().train()
        if compiled:
            recorded = recipe.sampling.batch <= 16  # wide batches do not wait for launches
            how: dict[str, Any] = {"mode": "reduce-overhead"} if recorded else {"dynamic": True}
            self.model.read = torch.compile(self.model._read, **how)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-5, weight_decay=0.0, fused=compiled)

    def step(self, pairs: Any) -> None:
        """One batch"""
        rows = self.source.rows[self.source.tasks[int(pairs[0, 0])]]
        torch.compiler.cudagraph_mark_step_begin()
        with autocast(self.precision, torch.device("cuda")):
            loss = self.model.loss(rows, pairs[:, 1].tolist())
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


def steps_per_second(step: Callable[[Any], None], batches: list[Any]) -> float:
    """All of them, from a quiet GPU to a quiet GPU"""
    torch.cuda.synchronize()
    begun = time.perf_counter()
    for pairs in batches:
        step(pairs)
    torch.cuda.synchronize()
    return len(batches) / (time.perf_counter() - begun)


def peak_above(recipe_bytes: float, step: Callable[[Any], None], batches: Iterable[Any]) -> float:
    """Peak memory in MB of some steps, above what learning always needs"""
    torch.cuda.reset_peak_memory_stats()
    for pairs in batches:
        step(pairs)
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - recipe_bytes) / 2**20


def floor(model: nn.Module, tokens: float) -> float:
    """Seconds that a step needs at least: parameters, gradients and two moments moved once, or all products made"""
    parameters = sum(each.numel() for each in model.parameters())
    matrices = sum(each.numel() for name, each in model.named_parameters() if each.ndim == 2 and "embeddings" not in name)
    return max(28 * parameters / BYTES, 6 * matrices * tokens / FLOPS)


def measure_steps(encoder: Path, name: str, batch: int, contenders: list[str], mixed: bool = False) -> list[dict[str, Any]]:
    """Training steps a second, every contender on the same batches."""
    changes = [f"sampling.mixed={str(mixed).lower()}"]
    trainer = ready(recipe(encoder, batch, *changes))
    source = trainer.source
    every = [pairs for epoch in range(8) for pairs in trainer.sampler.epoch(epoch) if len(pairs) == batch]
    short = [pairs for pairs in every if longest(source, pairs) <= 64]
    tokens = float(np.mean([source_tokens(source, pairs) for pairs in short[:400]]))
    found = []
    for contender in contenders:
        torch.cuda.empty_cache()
        torch.use_deterministic_algorithms(contender == "ours", warn_only=True)  # ours gives the same bits every time
        kind, _, precision = contender.partition(" ")
        if kind == "ours":
            step, model = our_step(trainer), cast(nn.Module, trainer.model)
        else:
            loop = Loop(trainer.recipe, source, precision, kind == "compiled")
            step, model = loop.step, loop.model
        count = max(6, STEPS[kind] * 16 // batch) if batch > 16 else STEPS[kind]
        fixed = 16 * sum(each.numel() for each in model.parameters())
        begun = time.perf_counter()
        warm = short[: 3 * count] if kind == "ours" else one_of_each(source, short)
        memory = peak_above(fixed, step, warm)
        warm_up = time.perf_counter() - begun
        speeds = [steps_per_second(step, short[turn * count : (turn + 1) * count]) for turn in range(ROUNDS)]
        found.append(
            {
                "encoder": name,
                "batch": f"{batch}{' mixed' if mixed else ''}",
                "loop": contender,
                "steps/s": float(np.median(speeds)),
                "lowest": min(speeds),
                "highest": max(speeds),
                "examples/s": float(np.median(speeds)) * batch,
                "of the floor": float(np.median(speeds)) * floor(model, tokens),
                "memory MB": memory,
                "warm-up s": warm_up,
            }
        )
        print(json.dumps(found[-1]), flush=True)
        if kind != "ours":
            del loop, step, model
            torch.compiler.reset()
    return found


def one_of_each(source: Source, batches: list[Any]) -> list[Any]:
    """Batches of every task and padded length that there is, twice over: a compiled step is made for each"""
    kinds: dict[tuple[int, bool], list[Any]] = {}
    for pairs in batches:
        kinds.setdefault((int(pairs[0, 0]), longest(source, pairs) <= 32), []).append(pairs)
    return [pairs for mine in kinds.values() for pairs in mine[:3]]


def longest(source: Source, pairs: Any) -> int:
    """Tokens of the longest sequence"""
    return max(len(part[row]) for task, row in pairs for part in source.rows[source.tasks[task]].sequences)


def source_tokens(source: Source, pairs: Any) -> int:
    """Real tokens of a batch"""
    return sum(len(part[row]) for task, row in pairs for part in source.rows[source.tasks[task]].sequences)


def measure_evaluation(encoder: Path) -> list[dict[str, Any]]:
    """All dev rows of the three tasks, answered."""
    given = recipe(encoder, 16)
    trainer = ready(given)
    source = trainer.select
    examples = sum(len(rows) for rows in source.rows.values())
    usual = Usual(given).cuda().eval()

    def usually() -> None:
        with torch.inference_mode(), autocast("bf16", torch.device("cuda")):
            for rows in source.rows.values():
                for start in range(0, len(rows), 256):
                    usual(rows, list(range(start, min(start + 256, len(rows))))).float().cpu()

    def ours() -> None:
        outputs(trainer.model, source, "bf16")

    found = []
    for name, run in (("usual bf16, batch 256", usually), ("ours, laid out anew", ours), ("ours, again", ours)):
        if name == "ours, laid out anew":
            outputs(trainer.model, Source(dict(source.rows.items())), "bf16")  # warms up
        torch.cuda.synchronize()
        begun = time.perf_counter()
        run()
        torch.cuda.synchronize()
        found.append({"loop": name, "examples": examples, "seconds": time.perf_counter() - begun})
        print(json.dumps(found[-1]), flush=True)
    return found


def measure_run(encoder: Path) -> dict[str, Any]:
    """The whole ten-epoch run of TEA-BERT, with evaluation after every epoch."""
    with tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        trainer = Trainer.begin(recipe(encoder, 16), Path(folder) / "run", Quiet())
        read = time.perf_counter() - begun
        run = trainer.run_all()
        found = {"steps": trainer.place.step, "reading s": read, "all s": time.perf_counter() - begun}
        print(json.dumps(found | {"training s": run.seconds}), flush=True)
        return found | {"training s": run.seconds}


def measure_kernels(encoder: Path, name: str) -> list[dict[str, Any]]:
    """Where a step's time on the GPU goes, kernel by kernel"""
    trainer = ready(recipe(encoder, 16))
    batches = [pairs for pairs in trainer.sampler.epoch(0) if len(pairs) == 16]
    steps_per_second(our_step(trainer), batches[:600])
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiled:
        steps_per_second(our_step(trainer), batches[600 : 600 + PROFILED])
    found = sorted(profiled.key_averages(), key=lambda each: each.self_device_time_total, reverse=True)
    rows = [(each.key[:90], each.count, each.self_device_time_total) for each in found if each.self_device_time_total]
    rows.insert(0, ("all", sum(count for _, count, _ in rows), sum(spent for *_, spent in rows)))
    heads = ("encoder", "kernel", "a step", "microseconds a step")
    return [
        dict(zip(heads, (name, kernel, count / PROFILED, spent / PROFILED), strict=True)) for kernel, count, spent in rows
    ]


def at_once(encoder: Path, barrier: Any, spent: Any) -> None:
    """One of several runs: so many steps between two meetings of all"""
    trainer = ready(recipe(encoder, 16))
    batches, step = [pairs for pairs in trainer.sampler.epoch(0) if len(pairs) == 16], our_step(trainer)
    steps_per_second(step, batches[:600])
    barrier.wait()
    begun = time.time()
    steps_per_second(step, batches[:600])
    spent.put((begun, time.time()))


def measure_together(encoder: Path) -> list[dict[str, Any]]:
    """Several runs on one GPU, each in a process of its own."""
    return [measure_shared(encoder, part) for part in SHARES]


def measure_shared(encoder: Path, part: int) -> dict[str, Any]:
    """The same where each may take so many percent of the GPU"""
    spawn = get_context("spawn")
    barrier, spent = spawn.Barrier(TOGETHER), spawn.Queue()
    with shared_gpu(TOGETHER, part) as why:
        processes = [spawn.Process(target=at_once, args=(encoder, barrier, spent)) for _ in range(TOGETHER)]
        for process in processes:
            process.start()
        times = [spent.get(timeout=240) for _ in processes]
        for process in processes:
            process.join()
    seconds = max(end for _, end in times) - min(begin for begin, _ in times)
    shared = why or f"by the multi-process service, at most {part} % of the GPU each"
    found = {"runs": TOGETHER, "shared": shared, "steps/s": TOGETHER * 600 / seconds}
    print(json.dumps(found), flush=True)
    return found


def tables(results: dict[str, Any]) -> str:
    """The results as Markdown."""
    facts = results["machine"]
    lines = [
        "# Training on a GPU: what a HuggingFace user has, against ours",
        "",
        f"`python benchmarks/train_gpu.py`. {facts['gpu']}, torch {facts['torch']}, teabert {facts['teabert']} at"
        f" {facts['commit']}. Random weights; lengths of SST, Quora (8,490 rows) and STS (3,020), at most 64 tokens; pairs"
        " encoded apart; dropout on; AdamW each step; ours with deterministic algorithms;"
        f" medians of {ROUNDS} rounds and their range.",
        "",
        "floor: the share of the time that a step needs at least: parameters, gradients, moments moved once at 4.3 TB/s,"
        " or all products made at 790 TFLOP/s. memory: the peak above weights, gradients and moments.",
        "",
        "| encoder | batch | loop | steps/s | range | examples/s | against usual | against compiled | floor | memory MB |"
        " warm-up s |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in sorted(results["steps"], key=lambda row: (row["encoder"], int(row["batch"].split()[0]))):
        same = [each for each in results["steps"] if (each["encoder"], each["batch"]) == (row["encoder"], row["batch"])]
        usual = max((each["steps/s"] for each in same if each["loop"].startswith("usual")), default=None)
        compiled = max((each["steps/s"] for each in same if each["loop"].startswith("compiled")), default=None)
        ratios = [f"{row['steps/s'] / against:.2f}x" if against else "-" for against in (usual, compiled)]
        lines.append(
            f"| {row['encoder']} | {row['batch']} | {row['loop']} | {row['steps/s']:.1f}"
            f" | {row['lowest']:.1f}-{row['highest']:.1f} | {row['examples/s']:,.0f} | {' | '.join(ratios)}"
            f" | {row['of the floor']:.0%} | {row['memory MB']:,.0f} | {row['warm-up s']:.0f} |"
        )
    for key in ("evaluation", "run", "together", "kernels"):
        if key in results:
            rows = results[key] if isinstance(results[key], list) else [results[key]]
            heads = list(rows[0])
            lines += ["", f"## {key}", "", f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
            lines += ["| " + " | ".join(_shown(row[head]) for head in heads) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def _shown(value: Any) -> str:
    return f"{value:,.2f}" if isinstance(value, float) else "-" if value is None else str(value)


def earlier(out: Path | None) -> dict[str, Any]:
    """What other calls have measured on this machine at this commit: a lent machine may not be there for all at once"""
    facts = machine_facts()
    file = out.with_suffix(".json") if out else None
    found: dict[str, Any] = json.loads(file.read_text()) if file and file.exists() else {}
    return found if found.get("machine") == facts else {"machine": facts, "steps": []}


def main() -> None:
    """Print the tables, and write them where --out says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--tokenizer", default="minilm", help="an encoder whose vocabulary is BERT's")
    parser.add_argument("--only", nargs="*", default=list(PARTS), choices=PARTS)
    given = parser.parse_args()
    results = earlier(given.out)
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = Path(given.tokenizer) if Path(given.tokenizer).is_dir() else encoder_folder(given.tokenizer)
        base = random_encoder(BASE, tokenizer, Path(folder) / "base")
        mpnet = random_encoder(MPNET, tokenizer, Path(folder) / "mpnet")
        for part in given.only:
            match part:
                case "batch-16" | "batch-256":
                    batch = int(part.removeprefix("batch-"))
                    results["steps"] += measure_steps(base, "BERT-base", batch, ["ours", "usual fp32", "usual bf16"])
                    results["steps"] += measure_steps(base, "BERT-base", batch, ["ours"], mixed=True)
                case "mpnet":
                    for batch in (16, 256):
                        results["steps"] += measure_steps(mpnet, "MPNet", batch, ["ours", "usual bf16"])
                case "compiled":
                    for batch in (16, 256):
                        results["steps"] += measure_steps(base, "BERT-base", batch, ["compiled bf16"])
                case "evaluation":
                    results[part] = measure_evaluation(base)
                case "run":
                    results[part] = measure_run(base)
                case "together":
                    results[part] = measure_together(base)
                case "kernels":
                    results[part] = measure_kernels(base, "BERT-base") + measure_kernels(mpnet, "MPNet")
            measured = {(row["encoder"], row["batch"], row["loop"]): row for row in results["steps"]}  # the last ones count
            results["steps"] = list(measured.values())
            if given.out:  # after every part: some of them take minutes
                given.out.parent.mkdir(parents=True, exist_ok=True)
                given.out.write_text(tables(results), encoding="utf-8")
                given.out.with_suffix(".json").write_text(json.dumps(results, indent=2) + "\n")
    print(tables(results))


if __name__ == "__main__":
    main()
