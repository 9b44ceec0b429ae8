"""What all exports write alike: a new folder, the tokenizer as transformers loads it, and what cleaning a text needs."""

import json
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from teabert.encoder import EncoderShape
from teabert.errors import UserError
from teabert.files import UNFINISHED
from teabert.predictor import Predictor
from teabert.tasks import Task
from teabert.text import TOKENIZER_FILE, TextEncoder

MASKS = ("[MASK]", "<mask>")
UNKNOWNS = ("[UNK]", "<unk>")
CLEANING = {
    "lower": "text = text.lower().strip()",
    "spaced": """text = text.lower().strip()
for mark in ".?,'":
    text = text.replace(mark, f" {mark}")
text = " ".join(text.split())""",
}
"""What a tokenizer's files cannot say: how the run's task cleaned its texts before."""


@contextmanager
def fresh_folder(target: Path) -> Iterator[Path]:
    """A working folder that takes the target's place in one step when the block ends well; nothing is overwritten."""
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise UserError(f"{target} is there already, and an export overwrites nothing. Choose another folder with --out.")
    target.parent.mkdir(parents=True, exist_ok=True)
    working = target.with_name(f"{UNFINISHED}{target.name}-{uuid.uuid4().hex[:8]}")
    working.mkdir()
    try:
        yield working
        if target.exists():
            target.rmdir()
        os.replace(working, target)
    finally:
        shutil.rmtree(working, ignore_errors=True)


def write_json(path: Path, content: Any) -> None:
    """One JSON file."""
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def write_tokenizer(text: TextEncoder, shape: EncoderShape, longest: int, folder: Path) -> None:
    """tokenizer.json, and a tokenizer_config.json with which transformers takes it as it is."""
    tokenizer = Tokenizer.from_str(text.tokenizer.to_str())
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.save(str(folder / TOKENIZER_FILE))
    inputs = ["input_ids", "token_type_ids", "attention_mask"] if shape.segments > 1 else ["input_ids", "attention_mask"]
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": longest, "model_input_names": inputs}
    write_json(
        folder / "tokenizer_config.json",
        config | special_tokens(tokenizer, shape) | {"clean_up_tokenization_spaces": False},
    )


def special_tokens(tokenizer: Tokenizer, shape: EncoderShape) -> dict[str, str]:
    """What stands first and last in a text, what fills up, and what stands for the unknown and the hidden."""
    empty = tokenizer.encode("").ids
    found = {
        "cls_token": tokenizer.id_to_token(empty[0]) if empty else None,
        "sep_token": tokenizer.id_to_token(empty[-1]) if empty else None,
        "pad_token": tokenizer.id_to_token(shape.padding_id),
        "unk_token": next((token for token in UNKNOWNS if tokenizer.token_to_id(token) is not None), None),
        "mask_token": next((token for token in MASKS if tokenizer.token_to_id(token) is not None), None),
    }
    return {name: token for name, token in found.items() if token is not None}


def token_limit(task: Task, shape: EncoderShape) -> int:
    """The most tokens of a text (or joined pair) of this task"""
    return min(task.max_tokens or shape.longest, shape.longest)


def cleaning(task: Task) -> str:
    """What to do to a text before the exported tokenizer, for a README; nothing where the task takes texts as they are"""
    if task.clean == "none":
        return ""
    return (
        f"\nThis task was trained on cleaned texts (`clean: {task.clean}`), which a tokenizer's files cannot express."
        f" Clean every text first:\n\n```python\n{CLEANING[task.clean]}\n```\n"
    )


def calibrated(predictor: Predictor, task: Task) -> str:
    """What to do to the logits of a calibrated task, for a README or a note; nothing where the task is not calibrated"""
    temperature = predictor.calibration.temperature(task.name)
    if temperature == 1:
        return ""
    return f"The run is calibrated for {task.name}: divide its logits by {temperature:.4g} for the same probabilities."
