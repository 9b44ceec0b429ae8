"""How long ten epochs of frozen SST with mean pooling take on a CPU, everything counted; and what they score.

    python benchmarks/frozen_sst.py [--out results/speed/frozen_sst.md]

MiniLM, all 8,544 training rows (TEABERT_DATA), the recipe task-attention-baseline with SST alone: the texts are encoded
once and the head learns from what the encoder answered. Wall time runs from reading the files to the last checkpoint.
"""

import argparse
import tempfile
import time
from pathlib import Path

from teabert.config import load_recipe
from teabert.progress import Live
from teabert.runs import machine_facts
from teabert.training import train

CHANGES = ["tasks.quora=false", "tasks.sts=false"]


def main() -> None:
    """Print the table, and write it where --out says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    facts = machine_facts()
    lines = [
        "# Frozen SST, mean pooling, ten epochs",
        "",
        f"`python benchmarks/frozen_sst.py`. {facts['processor']}, {facts['threads']} threads, torch {facts['torch']},"
        f" teabert {facts['teabert']} at {facts['commit']}."
        " Encoder all-MiniLM-L6-v2, seed 11711, best epoch chosen on dev.",
        "",
        "| precision | wall | dev accuracy | best epoch |",
        "|---|---|---|---|",
    ]
    for precision in ("fp32", "bf16"):
        with tempfile.TemporaryDirectory() as folder:
            begun = time.perf_counter()
            recipe = load_recipe("task-attention-baseline", [*CHANGES, f"train.precision={precision}"])
            scores = train(recipe, Path(folder) / "run", progress=Live()).scores()
            seconds = time.perf_counter() - begun
        accuracy = scores["tasks"]["sst"]["accuracy"]
        lines.append(f"| {precision} | {seconds:.0f} s | {accuracy:.4f} | {scores['epoch']} |")
    text = "\n".join(lines) + "\n"
    print(text)
    if given.out:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
