"""Reading texts on a CPU: ours against HuggingFace, compiled HuggingFace, sentence-transformers and ONNX Runtime.

    python benchmarks/infer_cpu.py [--texts 512] [--rounds 5] [--out results/speed/infer_cpu.md]

MiniLM-L6, questions of Quora's dev rows (TEABERT_DATA), tokenised beforehand for all but sentence-transformers, which
tokenises itself and whose row says so; each text's tokens averaged into one vector. Rows: one text at a time; batches of 32
as texts come; all texts at hand, so that everyone sorts them by length. The contenders take turns, each after a rest, in
which the threads of the one before fall asleep, and a batch without timing; the table has texts a second over all rounds.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from teabert.batches import Rows, by_length, collate
from teabert.device import autocast
from teabert.heads.reading import Reading
from teabert.hub import encoder_folder
from teabert.injections import make_injection
from teabert.pretrained import load_encoder
from teabert.runs import machine_facts
from teabert.source import ENCODE_TOKENS
from teabert.tasks import make_task
from teabert.tasks.reading import Example, read_split
from teabert.text import TextEncoder

BATCH = 32
ALONE = 192
"""Texts that are read one at a time; all would take long and say no more"""
REST = 0.3
"""Seconds between turns: threads of OpenMP and of ONNX Runtime wait in busy loops for a while"""
EXACT = {"ours, bf16": 0.1, "HuggingFace, bf16": 0.1, "ONNX Runtime, int8": 0.5}
"""How far an answer may be from the usual one; 0.0001 where nothing is said"""
Read = Callable[[Sequence[int]], np.ndarray]
"""Numbers of texts -> their vectors"""


def texts_and_rows(count: int) -> tuple[list[str], Rows]:
    """Questions as they stand in the file, and their tokens."""
    examples = read_split(make_task("quora", None, "quora"), "dev", None).examples[:count]
    texts = [example.texts[0] for example in examples]
    task = make_task("one", {"texts": "text", "kind": "score", "range": [0, 1], "files": "{split}.csv"}, "one")
    folder = encoder_folder("minilm", progress=False)
    text = TextEncoder.load(folder, 512, 30522)
    rows, _ = text.rows(task, [Example(str(n), (each,), 0.0) for n, each in enumerate(texts)])
    return texts, rows


class Ours:
    """Packed."""

    def __init__(self, rows: Rows, precision: str) -> None:
        self.rows, self.precision = rows, precision
        self.encoder, _ = load_encoder(encoder_folder("minilm", progress=False))
        self.encoder.eval()
        self.nothing = make_injection("none", self.encoder.shape, ["one"])

    def __call__(self, numbers: Sequence[int]) -> np.ndarray:
        """(texts, width)"""
        with torch.inference_mode(), autocast(self.precision, torch.device("cpu")):
            batch = collate([(self.rows, number) for number in numbers], ["one"])
            reading = Reading(self.encoder(batch, self.nothing).float(), batch.layout, self.encoder)
            return reading.mean.index_select(0, batch.parts[0].first).numpy()


class HuggingFace:
    """Padded, eager or compiled."""

    def __init__(self, rows: Rows, precision: str, compiled: bool = False) -> None:
        import transformers

        self.rows, self.precision = rows, precision
        folder = encoder_folder("minilm", progress=False)
        self.model: Any = transformers.AutoModel.from_pretrained(folder, add_pooling_layer=False).eval()
        if compiled:
            self.model = torch.compile(self.model, dynamic=True)

    def __call__(self, numbers: Sequence[int]) -> np.ndarray:
        """(texts, width)"""
        ids, mask = padded(self.rows, numbers)
        with torch.inference_mode(), autocast(self.precision, torch.device("cpu")):
            states = self.model(input_ids=ids, attention_mask=mask).last_hidden_state.float()
            return averaged(states, mask).numpy()


class Onnx:
    """Padded, in ONNX Runtime."""

    def __init__(self, rows: Rows, path: Path) -> None:
        import onnxruntime

        self.rows = rows
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        self.session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    @staticmethod
    def export(rows: Rows, folder: Path) -> Path:
        """HuggingFace's model as ONNX"""
        import transformers

        source = encoder_folder("minilm", progress=False)
        model = transformers.AutoModel.from_pretrained(source, add_pooling_layer=False, attn_implementation="eager").eval()
        ids, mask = padded(rows, [0, 1])
        names = ["input_ids", "attention_mask"]
        axes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("tokens")}

        class Plain(torch.nn.Module):
            def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
                """(batch, tokens) -> (batch, tokens, width)"""
                found: Tensor = model(input_ids=ids, attention_mask=mask).last_hidden_state
                return found

        path = folder / "model.onnx"
        torch.onnx.export(
            Plain().eval(), (ids, mask), str(path), input_names=names, output_names=["states"],
            dynamic_shapes=(axes, axes), dynamo=True, verbose=False,
        )  # fmt: skip
        return path

    @staticmethod
    def quantised(path: Path) -> Path:
        """The same with the weights of all products in int8, and what they read made int8 on the way"""
        from onnxruntime.quantization import QuantType, quantize_dynamic

        small = path.with_name("small.onnx")
        quantize_dynamic(path, small, weight_type=QuantType.QInt8, op_types_to_quantize=["MatMul", "Gemm"])
        return small

    def __call__(self, numbers: Sequence[int]) -> np.ndarray:
        """(texts, width)"""
        ids, mask = padded(self.rows, numbers)
        (states,) = self.session.run(None, {"input_ids": ids.numpy(), "attention_mask": mask.numpy()})
        return averaged(torch.from_numpy(states), mask).numpy()


class Sentences:
    """sentence-transformers, which tokenises for itself and sorts by length."""

    def __init__(self, texts: Sequence[str]) -> None:
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.models import Pooling, Transformer  # type: ignore[import-not-found]

        folder = str(encoder_folder("minilm", progress=False))
        self.texts = texts
        self.model = SentenceTransformer(modules=[Transformer(folder, max_seq_length=512), Pooling(384)], device="cpu")

    def __call__(self, numbers: Sequence[int]) -> np.ndarray:
        """(texts, width)"""
        found = self.model.encode([self.texts[number] for number in numbers], batch_size=BATCH, show_progress_bar=False)
        return np.asarray(found)


def padded(rows: Rows, numbers: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Ids and mask, (texts, longest)"""
    texts = [rows.sequences[0][number] for number in numbers]
    lengths = np.array([len(text) for text in texts])
    mask = np.arange(lengths.max())[None] < lengths[:, None]
    ids = np.zeros(mask.shape, np.int64)
    ids[mask] = np.concatenate(texts)
    return torch.from_numpy(ids), torch.from_numpy(mask.astype(np.int64))


def averaged(states: Tensor, mask: Tensor) -> Tensor:
    """(texts, tokens, width) -> (texts, width)"""
    return (states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)


def works(rows: Rows) -> dict[str, list[list[int]]]:
    """The batches of each kind of work; at hand: everyone's are sorted by length"""
    everything = list(range(len(rows)))
    order = np.argsort(rows.lengths(), kind="stable").tolist()
    return {
        "one at a time": [[number] for number in everything[:ALONE]],
        f"batches of {BATCH} as they come": [everything[start : start + BATCH] for start in range(0, len(rows), BATCH)],
        "all at hand": [order[start : start + BATCH] for start in range(0, len(rows), BATCH)],
    }


def measure(texts: Sequence[str], rows: Rows, rounds: int, folder: Path) -> list[dict[str, Any]]:
    """Texts a second of each contender at each work."""
    exported = Onnx.export(rows, folder)
    contenders: dict[str, Read] = {
        "ours": Ours(rows, "fp32"),
        "HuggingFace": HuggingFace(rows, "fp32"),
        "HuggingFace, torch.compile": HuggingFace(rows, "fp32", compiled=True),
        "sentence-transformers (tokenises)": Sentences(texts),
        "ONNX Runtime": Onnx(rows, exported),
        "ONNX Runtime, int8": Onnx(rows, Onnx.quantised(exported)),
        "ours, bf16": Ours(rows, "bf16"),
        "HuggingFace, bf16": HuggingFace(rows, "bf16"),
    }
    expected = contenders["HuggingFace"](range(4))
    off = {name: float(np.abs(read(range(4)) - expected).max()) for name, read in contenders.items()}
    for name, worst in off.items():
        assert worst < EXACT.get(name, 1e-4), f"{name} answers otherwise, by {worst}"
    found = []
    for work, batches in works(rows).items():
        count = sum(len(batch) for batch in batches)
        spent: dict[str, list[float]] = {name: [] for name in contenders}
        for turn in range(-1, rounds):  # turn -1 warms up, and compiles
            for name, read in contenders.items():
                mine = whole(name, work, batches, rows)
                time.sleep(REST)
                read(mine[0])
                begun = time.perf_counter()
                for batch in mine:
                    read(batch)
                if turn >= 0:
                    spent[name].append(time.perf_counter() - begun)
            print(f"{work}: round {turn + 1} of {rounds}", file=sys.stderr, flush=True)
        for name, seconds in spent.items():
            speeds = [count / each for each in seconds]
            facts = {"work": work, "contender": name, "off by": off[name], "texts/s": count * rounds / sum(seconds)}
            found.append(facts | {"lowest": min(speeds), "highest": max(speeds)})
    return found


def whole(name: str, work: str, batches: list[list[int]], rows: Rows) -> list[list[int]]:
    """With all texts at hand, ours takes batches of so many tokens, and sentence-transformers takes all and sorts them"""
    if work == "all at hand" and name.startswith("ours"):
        return list(by_length(rows, ENCODE_TOKENS))
    if work == "all at hand" and name.startswith("sentence"):
        return [list(range(len(rows)))]
    return batches


def report(rows: list[dict[str, Any]], texts: Rows, rounds: int) -> str:
    """The result as Markdown."""
    facts, lengths = machine_facts(), texts.lengths()
    lines = [
        "# Reading texts on a CPU",
        "",
        f"`python benchmarks/infer_cpu.py`. {facts['processor']}, {facts['threads']} threads, torch {facts['torch']},"
        f" teabert {facts['teabert']} at {facts['commit']}. all-MiniLM-L6-v2, {len(texts)} questions of"
        f" {lengths.mean():.1f} tokens ({lengths.min()}-{lengths.max()}), {rounds} rounds; in brackets their range.",
        "",
        "| work | contender | texts/s | range | ours is faster by | numbers off by |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        half = row["contender"].endswith("bf16")
        mine = next(r for r in rows if r["work"] == row["work"] and r["contender"] == ("ours, bf16" if half else "ours"))
        lines.append(
            f"| {row['work']} | {row['contender']} | {row['texts/s']:.0f} | {row['lowest']:.0f}-{row['highest']:.0f}"
            f" | {mine['texts/s'] / row['texts/s']:.2f}x | {row['off by']:.0e} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Print the table, and write it where --out says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    texts, rows = texts_and_rows(given.texts)
    with tempfile.TemporaryDirectory() as folder:
        found = measure(texts, rows, given.rounds, Path(folder))
    text = report(found, rows, given.rounds)
    print(text)
    if given.out:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(text, encoding="utf-8")
        content = {"machine": machine_facts(), "rows": found}
        given.out.with_suffix(".json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
