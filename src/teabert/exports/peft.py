"""The low-rank updates of one task as a PEFT adapter, and the encoder that they belong on (Hu et al. 2021)."""

from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor

from teabert.catalogue import ENCODERS
from teabert.errors import UserError
from teabert.exports.asked import Asked, Written
from teabert.exports.folders import token_limit, write_json, write_tokenizer
from teabert.exports.sentences import CLASSES
from teabert.exports.single import INSTEAD
from teabert.injections.lora import LoRA
from teabert.pretrained import FAMILIES, to_config, to_published
from teabert.tasks import Task

ENCODER = "encoder"
"""The folder of the run's own encoder inside the adapter's, where training changed it."""


def write(asked: Asked, folder: Path) -> Written:
    """adapter_config.json and adapter_model.safetensors; the encoder too, where it is no longer the published one."""
    predictor, task = asked.predictor, asked.task
    injection, encoder = predictor.model.injection, predictor.model.encoder
    if not isinstance(injection, LoRA):
        raise UserError(
            "A PEFT adapter holds low-rank updates: it needs a run trained with 'injection: lora' alone."
            f" --to hf writes one task of a run whose injection folds. {INSTEAD}"
        )
    shape, recipe = encoder.shape, predictor.run.recipe
    frozen = recipe.train.mode == "frozen" and recipe.base is None
    base = published_as(recipe.encoder) if frozen else ENCODER
    weights = adapter(injection, task.name, shape.family)
    save_file(weights, folder / "adapter_model.safetensors", {"format": "pt"})
    places = sorted({name.removeprefix("base_model.model.").rsplit(".", 2)[0] for name in weights})
    config = {
        "peft_type": "LORA",
        "task_type": "FEATURE_EXTRACTION",
        "base_model_name_or_path": base,
        "r": injection.rank,
        "lora_alpha": injection.scale * injection.rank,
        "lora_dropout": 0.0,
        "target_modules": places,
        "bias": "none",
        "inference_mode": True,
    }
    write_json(folder / "adapter_config.json", config)
    write_tokenizer(predictor.text, shape, token_limit(task, shape), folder)
    if not frozen:
        inner = folder / ENCODER
        inner.mkdir()
        save_file(to_published(encoder.state_dict(), shape), inner / "model.safetensors", {"format": "pt"})
        write_json(inner / "config.json", to_config(shape) | {"architectures": [CLASSES[shape.family]]})
    (folder / "README.md").write_text(_readme(task, base, frozen), encoding="utf-8")
    where = f"onto {base}" if frozen else f"onto the run's own encoder in {ENCODER}/, which training changed"
    return Written([f"{task.name}: the adapter goes {where}; the task's head is not in it, --to hf has it where it fits"])


def published_as(encoder: str) -> str:
    """Where users of transformers find a recipe's encoder"""
    return ENCODERS[encoder].hub if encoder in ENCODERS else encoder


def adapter(injection: LoRA, task: str, family: str) -> dict[str, Tensor]:
    """The task's updates by PEFT's names: A is the way down, B the way up, for queries and values of each layer"""
    layers, block = FAMILIES[family]
    found = {}
    for layer in injection.span.layers:
        row = injection.span.row(layer)
        updates = zip(injection.down[task][row].chunk(2), injection.up[task][row], ("query", "value"), strict=True)
        for down, up, part in updates:
            name = f"base_model.model.{layers}.{layer}.{block[part]}"
            found[f"{name}.lora_A.weight"] = down.detach().clone()
            found[f"{name}.lora_B.weight"] = up.detach().clone()
    return found


def _readme(task: Task, base: str, frozen: bool) -> str:
    place = f'"{base}"' if frozen else f'"THIS_FOLDER/{ENCODER}"'
    return f"""# {task.name}

The low-rank updates (LoRA) of one task of a teabert model, as a PEFT adapter. With it the encoder gives the token states
that the model's own head reads; the head is not part of the adapter.

```python
from peft import PeftModel
from transformers import AutoModel

model = PeftModel.from_pretrained(AutoModel.from_pretrained({place}), "THIS_FOLDER")
```
"""
