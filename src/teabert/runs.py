"""A run folder: everything a run was made of and everything it made, so that it can be resumed, judged and used.

recipe.yaml   complete      run.json    seed, versions, machine, encoder    subsets.json  which rows trained
log.jsonl     one line a measurement      scores.json   the best epoch's      tokenizer.json, encoder.json
checkpoints/STEP/  to go on from          best/  the model to use             predictions/
"""

import json
import os
import platform
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from teabert import __version__
from teabert.config import Recipe, parse_recipe, read_yaml, to_yaml
from teabert.errors import UserError
from teabert.files import UNFINISHED, new_folder, verify, write_json, write_text

if TYPE_CHECKING:
    from torch import Tensor

FORMAT = 1
"""Raised when a run folder of this version could not be read by the one before."""
KEEP = 2
"""Checkpoints that are kept: the newest, and the one before it in case the newest is damaged."""


@dataclass(frozen=True)
class Checkpoint:
    """What training goes on from."""

    weights: dict[str, "Tensor"]
    optimizer: dict[str, "Tensor"]
    state: dict[str, Any]


class Run:
    """A run folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, path: Path, recipe: Recipe, facts: Mapping[str, Any]) -> "Run":
        """A new run folder, or the same one begun again before it saved anything; never over another run."""
        if path.exists() and not path.is_dir():
            raise UserError(f"{path} is a file; --out must name a new folder.")
        if not unbegun(path) and any(path.iterdir()):
            raise UserError(f"{path} already holds files. Go on with --resume, or choose another folder with --out.")
        run = cls(path)
        run.clean()
        write_text(path / "recipe.yaml", to_yaml(recipe))
        write_json(path / "run.json", {"format": FORMAT} | machine_facts() | dict(facts))
        return run

    @classmethod
    def open(cls, path: str | Path) -> "Run":
        """An existing run folder."""
        run = cls(Path(path).expanduser())
        if not run.path.is_dir():
            raise UserError(f"There is no run folder {run.path}. Train one with: teabert train RECIPE --out {run.path}")
        facts = run.facts()
        if not isinstance(facts.get("format"), int) or not (run.path / "recipe.yaml").is_file():
            raise UserError(f"{run.path} is no run folder: it lacks run.json with a format, or recipe.yaml.")
        if facts["format"] > FORMAT:
            raise UserError(
                f"{run.path} was written by teabert {facts.get('teabert', 'of a newer version')} (run format"
                f" {facts['format']}); this is teabert {__version__} (format {FORMAT}). Update with: pip install -U teabert"
            )
        return run

    def facts(self) -> dict[str, Any]:
        """Seed, versions, machine, encoder."""
        facts = self._json("run.json")
        return facts if isinstance(facts, dict) else {}

    @property
    def recipe(self) -> Recipe:
        """The complete recipe of the run."""
        file = self.path / "recipe.yaml"
        return parse_recipe(read_yaml(file), str(file))

    # scores and log

    def scores(self) -> dict[str, Any]:
        """The best epoch's scores; empty before the first epoch ends."""
        return self._json("scores.json") or {}

    def save_scores(self, scores: Mapping[str, Any]) -> None:
        """Keep the best epoch's scores."""
        write_json(self.path / "scores.json", scores)

    def log(self) -> list[dict[str, Any]]:
        """All lines of the log."""
        file = self.path / "log.jsonl"
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        return [json.loads(line) for line in lines if line.endswith("}")]  # a kill may have cut the last one

    def append(self, **line: Any) -> None:
        """Add a line to the log."""
        with (self.path / "log.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")

    def cut_log(self, lines: int) -> None:
        """Drop what was logged after the checkpoint that is resumed from."""
        kept = [json.dumps(line, ensure_ascii=False) + "\n" for line in self.log()[:lines]]
        write_text(self.path / "log.jsonl", "".join(kept))

    @property
    def seconds(self) -> float:
        """Time spent training, over all resumptions."""
        return float(self.scores().get("seconds", 0.0))

    # weights

    def save_checkpoint(self, step: int, checkpoint: Checkpoint) -> None:
        """Write a checkpoint in one step, and drop all but the last two."""
        from safetensors.torch import save_file

        with new_folder(self.path / "checkpoints" / f"{step:08d}") as folder:
            save_file(checkpoint.weights, folder / "weights.safetensors")
            save_file(checkpoint.optimizer, folder / "optimizer.safetensors")
            (folder / "state.json").write_text(json.dumps(checkpoint.state), encoding="utf-8")
        for old in self.checkpoints()[:-KEEP]:
            shutil.rmtree(old, ignore_errors=True)

    def checkpoints(self) -> list[Path]:
        """Checkpoint folders, oldest first."""
        return sorted(path for path in (self.path / "checkpoints").glob("[0-9]*") if path.is_dir())

    def load_checkpoint(self) -> tuple[Checkpoint | None, list[str]]:
        """The newest undamaged checkpoint, and what is wrong with newer ones; nothing where none was saved."""
        from safetensors.torch import load_file

        problems: list[str] = []
        for folder in reversed(self.checkpoints()):
            try:
                verify(folder)
            except UserError as error:
                problems.append(str(error))
                continue
            state = json.loads((folder / "state.json").read_text(encoding="utf-8"))
            weights = load_file(folder / "weights.safetensors")
            return Checkpoint(weights, load_file(folder / "optimizer.safetensors"), state), problems
        return None, problems

    def clean(self) -> None:
        """Delete what a killed process left half written."""
        for leftover in [*self.path.glob(f"{UNFINISHED}*"), *self.path.glob(f"*/{UNFINISHED}*")]:
            shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()

    def save_best(self, weights: Mapping[str, "Tensor"], scores: Mapping[str, Any]) -> None:
        """Write the model to use, with its scores beside it."""
        from safetensors.torch import save_file

        with new_folder(self.path / "best") as folder:
            save_file(
                {name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()},
                folder / "model.safetensors",
            )
            (folder / "scores.json").write_text(json.dumps(scores, indent=2), encoding="utf-8")

    def load_best(self) -> dict[str, "Tensor"]:
        """The weights of the best epoch."""
        from safetensors.torch import load_file

        folder = self.path / "best"
        if not folder.is_dir():
            raise UserError(
                f"{self.path} has no trained model yet: no epoch was finished. Go on with: teabert train --resume"
            )
        verify(folder)
        return load_file(folder / "model.safetensors")

    def _json(self, name: str) -> Any:
        file = self.path / name
        if not file.exists():
            return None
        try:
            return json.loads(file.read_text(encoding="utf-8"))
        except ValueError as error:
            raise UserError(f"{file} is damaged: {error}.") from None


def unbegun(path: Path) -> bool:
    """Whether nothing is there yet, or only what a run that was killed at its very start left behind."""
    return not path.exists() or all(
        file.name == "recipe.yaml" or file.name.startswith(UNFINISHED) for file in path.iterdir()
    )


def free_folder(name: str, runs: Path = Path("runs")) -> Path:
    """runs/NAME, or runs/NAME-2 and so on where that is taken."""
    path, number = runs / name, 1
    while path.exists():
        number += 1
        path = runs / f"{name}-{number}"
    return path


def newest_folder(name: str, runs: Path = Path("runs")) -> Path:
    """The last folder that free_folder gave for this name."""
    path, number = runs / name, 1
    while (runs / f"{name}-{number + 1}").exists():
        number += 1
        path = runs / f"{name}-{number}"
    return path


def machine_facts() -> dict[str, Any]:
    """Versions and hardware, for the record."""
    import safetensors
    import tokenizers
    import torch

    return {
        "teabert": __version__,
        "commit": _commit(),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "tokenizers": tokenizers.__version__,
        "safetensors": safetensors.__version__,
        "processor": _processor(),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


@cache
def _commit() -> str | None:
    """The commit of a source checkout; of a copy without its history what TEABERT_COMMIT says"""
    if named := os.environ.get("TEABERT_COMMIT"):
        return named
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        name = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        name = platform.processor() or platform.machine()
    return f"{name}, {os.cpu_count()} cores"


def shape_file(run: Run) -> Path:
    """Where the encoder's shape is kept."""
    return run.path / "encoder.json"


def save_shape(run: Run, shape: Any) -> None:
    """Keep the encoder's shape, so that the run needs no other folder to be loaded."""
    write_json(shape_file(run), asdict(shape))
