"""A trained run leaves teabert: EXPORTS, the one list of formats, and the one function that writes them."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from teabert.errors import UserError, unknown
from teabert.exports import hf, hub, onnx, peft
from teabert.exports.asked import Asked, Loss, Written
from teabert.exports.folders import fresh_folder
from teabert.predictor import load
from teabert.progress import Progress, Quiet


@dataclass(frozen=True)
class Export:
    """One format."""

    write: Callable[[Asked, Path], Written]
    """Fills a new folder."""
    single: bool
    """It holds one task, else all of them."""


EXPORTS: dict[str, Export] = {
    "hf": Export(hf.write, single=True),
    "onnx": Export(onnx.write, single=False),
    "hub": Export(hub.write, single=False),
    "peft": Export(peft.write, single=True),
}
"""The one list; to add a format, add a line."""


@dataclass(frozen=True)
class Exported:
    """What was written."""

    path: Path
    written: Written

    def as_json(self) -> dict[str, Any]:
        """For --json."""
        return {"path": str(self.path), **asdict(self.written)}


def export(
    run: str | Path,
    to: str,
    task: str | None = None,
    out: str | Path | None = None,
    int8: bool = False,
    progress: Progress | None = None,
) -> Exported:
    """Write a run, or one task of it, in another format into a new folder; by default exports/FORMAT inside the run."""
    if to not in EXPORTS:
        raise unknown("export format", to, EXPORTS)
    form = EXPORTS[to]
    if task is not None and not form.single:
        raise UserError(f"--to {to} holds all tasks of the run in one folder; leave out --task.")
    if int8 and to != "onnx":
        raise UserError(f"--int8 goes with --to onnx, not with --to {to}.")
    predictor = load(run, device="cpu", precision="fp32")
    chosen = predictor.task(task) if form.single else None
    usual = predictor.run.path / "exports" / (to if chosen is None else f"{to}-{chosen.name}")
    target = Path(out).expanduser().absolute() if out else usual
    try:
        with fresh_folder(target) as folder:
            written = form.write(Asked(predictor, chosen, int8, progress or Quiet()), folder)
    except OSError as error:
        raise UserError(f"{target} cannot be written: {error.strerror or error}.") from None
    return Exported(target, written)


__all__ = ["EXPORTS", "Exported", "Loss", "Written", "export"]
