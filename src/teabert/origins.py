"""Where a run's encoder comes from: a published one, or a run that was trained before and lends its own."""

import json
from dataclasses import dataclass
from pathlib import Path

import torch

from teabert.config import Recipe
from teabert.encoder import Encoder, EncoderShape
from teabert.errors import UserError
from teabert.files import known_sha256
from teabert.hub import encoder_folder
from teabert.model import Model, assemble
from teabert.pretrained import folder_shape, load_encoder
from teabert.runs import Run, shape_file


@dataclass(frozen=True)
class Origin:
    """What a new model is built on."""

    folder: Path
    """its tokenizer, and its weights where it is a published encoder"""
    shape: EncoderShape
    run: Run | None = None
    """the run that lends its encoder, and what its injection shares"""

    @property
    def checksum(self) -> str:
        """Of its weights"""
        if self.run is not None:
            return known_sha256(self.folder / "best" / "model.safetensors")
        modern = self.folder / "model.safetensors"
        return known_sha256(modern if modern.exists() else self.folder / "pytorch_model.bin")


def find_origin(recipe: Recipe, progress: bool) -> Origin:
    """The origin that a recipe names; a published encoder is fetched if need be."""
    if recipe.base is None:
        folder = encoder_folder(recipe.encoder, progress=progress)
        return Origin(folder, folder_shape(folder))
    run = Run.open(recipe.base)
    if run.recipe.injection != recipe.injection:
        raise UserError(
            f"base: {run.path} has injection {run.recipe.injection!r}, the recipe has {recipe.injection!r}. Leave the"
            " recipe's out, or write the same."
        )
    return Origin(run.path, run_shape(run), run)


def run_shape(run: Run) -> EncoderShape:
    """The shape of a run's encoder."""
    try:
        return EncoderShape(**json.loads(shape_file(run).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise UserError(f"{shape_file(run)} is missing or damaged: {error}.") from None


def build(recipe: Recipe, origin: Origin) -> tuple[Model, list[str]]:
    """The recipe's model around the origin's encoder; and which pooler weights start anew."""
    torch.manual_seed(recipe.train.seed)
    if origin.run is None:
        encoder, missing = load_encoder(origin.folder)
        return assemble(recipe, encoder), missing
    weights = origin.run.load_best()
    model = assemble(recipe, Encoder(origin.shape))
    known = model.state_dict().keys() - set(model.owned(*model.tasks))
    absent, _ = model.load_state_dict({name: weights[name] for name in known if name in weights}, strict=False)
    lacking = [name for name in absent if name in known]
    if lacking:
        raise UserError(f"base: the weights of {origin.folder} lack {', '.join(lacking)}; the run is damaged.")
    return model, []
