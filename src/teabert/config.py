"""The recipe: YAML differences and --set in, one strict, complete, frozen Recipe out. Defaults are written here, once."""

import re
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import BeforeValidator, Field, model_validator

from teabert.checks import check
from teabert.errors import UserError, nearest
from teabert.injections import Injections
from teabert.methods import Choice, resolve
from teabert.metrics import AGGREGATES
from teabert.optim import OptimSettings, Schedule
from teabert.sampling import SamplingSettings
from teabert.settings import Settings, parse, shown
from teabert.tasks import Task, make_task
from teabert.weighting import WEIGHTINGS

LEARNING_RATES = {"frozen": 1e-3, "finetune": 1e-5}
"""The course's: heads alone learn fast, the encoder slowly."""


class TrainSettings(OptimSettings, Schedule):
    """How the recipe trains."""

    mode: Literal["frozen", "finetune"] = "finetune"
    """frozen: only heads and injection learn (on a base, only what belongs to the tasks alone); finetune: everything."""
    epochs: int = Field(10, ge=1)
    """An epoch is as many examples as the tasks have rows, unless sampling says otherwise."""
    seed: int = Field(11711, ge=0)
    """Seeds the order of the rows, the choice of subsets, new weights and dropout."""
    precision: Literal["fp32", "bf16", "auto"] = "auto"
    """bf16 keeps fp32 master weights; auto: bf16 where the processor computes in it, else fp32."""
    accumulate: int = Field(1, ge=1)
    """Batches that are summed up before each step."""
    clip: float | None = Field(None, gt=0)
    """Largest norm of the gradient."""
    weighting: Choice = "fixed"
    """How tasks are weighed: fixed, by their weight; uncertainty, learned, as a name or {method: NAME, option: value}."""
    surgery: Literal["none", "watch", "pcgrad"] = "none"
    """pcgrad: where two tasks' gradients point against each other, take the clash away; watch: only log how often they
    do. Either way each task has a backward pass of its own."""
    patience: int | None = Field(None, ge=1)
    """Stop after so many epochs without a better aggregate."""
    select: Literal["dev"] | Annotated[float, Field(gt=0, lt=1)] = "dev"
    """The best epoch is chosen on dev (the papers' way), or on this part of the training rows, which then do not train."""
    calibrate: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Fit each task's temperature, which makes probabilities honest, on this part of its rows, which then do not train."""
    aggregate: str = "mean"
    """How the tasks' first metrics become one number: mean, or course, where a correlation r counts as (1 + r) / 2."""
    encoder_dropout: bool = False
    """In frozen mode: keep the encoder's dropout on (the papers' way; every text is then encoded anew each time)."""
    checkpoint_every: int | None = Field(None, ge=1)
    """Save after so many steps, besides the end of every epoch."""
    on_collapse: Literal["warn", "stop"] = "warn"
    """What to do when a task gets the same prediction for every row."""
    deterministic: bool = True
    """Only algorithms that give the same bits every time."""
    record: bool = True
    """On a GPU: record a step for every shape of batch and play it back, which frees it from waiting for Python."""

    @model_validator(mode="after")
    def _known(self) -> Self:
        if self.aggregate not in AGGREGATES:
            raise ValueError(f"aggregate: '{self.aggregate}' is not one of {', '.join(AGGREGATES)}")
        resolve(WEIGHTINGS, self.weighting, "weighting")
        return self


def _tasks(given: Any) -> Any:
    """A list of names, or a mapping from name to differences -> a mapping of tasks."""
    if isinstance(given, str):
        given = [given]
    if isinstance(given, Sequence) and all(isinstance(name, str) for name in given):
        given = dict.fromkeys(given)
    if not isinstance(given, Mapping) or not given:
        raise ValueError("give the tasks as a list of names, or as a mapping from name to what differs")
    if all(isinstance(task, Task) for task in given.values()):
        return given
    given = {name: facts for name, facts in given.items() if facts is not False}  # --set tasks.NAME=false
    if not given:
        raise ValueError("every task is left out; keep at least one")
    for name, facts in given.items():
        if facts is not None and not isinstance(facts, Mapping):
            raise ValueError(f"'{name}' must hold a mapping of what differs, or false to leave it out; got {shown(facts)}")
    return {str(name): make_task(str(name), facts, f"tasks.{name}") for name, facts in given.items()}


class Recipe(Settings):
    """Everything a run depends on."""

    name: str = Field("recipe", pattern=r"^[A-Za-z0-9._-]+$")
    """Names the run folder; the file's name by default."""
    encoder: str = "minilm"
    """A known encoder, a local folder, or a hub id."""
    base: str | None = None
    """A trained run whose encoder, and what its injection shares between tasks, is built on; instead of `encoder`."""
    tasks: Annotated[dict[str, Task], BeforeValidator(_tasks)]
    """The tasks that are learned together."""
    data: str | None = None
    """The folder of the tasks' files, by default the recipe's own; $TEABERT_DATA is looked through after it."""
    injection: Injections = "none"
    """How the task enters the encoder: a method, or a list of methods."""
    sampling: SamplingSettings = SamplingSettings()
    """Which examples come next."""
    train: TrainSettings = TrainSettings()
    """The training loop, the optimiser and the learning rate."""

    @model_validator(mode="after")
    def _related(self) -> Self:
        check(self)
        return self

    @property
    def lr(self) -> float:
        """The learning rate, or the mode's usual one."""
        return self.train.lr if self.train.lr is not None else LEARNING_RATES[self.train.mode]


def load_recipe(path: str | Path, changes: Sequence[str] = ()) -> Recipe:
    """A recipe file (or the name of one that comes with teabert) with `key=value` changes."""
    file = find_recipe(path)
    given = read_yaml(file)
    for change in changes:
        apply_change(given, change)
    given.setdefault("name", file.stem)
    return parse_recipe(given, str(file), file.parent)


def parse_recipe(given: Mapping[str, Any], where: str = "recipe", folder: Path | None = None) -> Recipe:
    """A checked recipe from a mapping; a relative data folder is below the recipe's own."""
    given = dict(given)
    if folder is not None and isinstance(given.get("data", "."), str):
        given["data"] = str((folder / Path(given.get("data", ".")).expanduser()).resolve())
    return parse(Recipe, given, where)


def find_recipe(path: str | Path) -> Path:
    """A recipe by path, or by the name of one that comes with teabert."""
    file = Path(path).expanduser()
    if file.is_file():
        return file
    known = {item.name.removesuffix(".yaml"): item for item in builtin_recipes()}
    short = str(path).removesuffix(".yaml")
    if short in known:
        return known[short]
    raise UserError(
        f"There is no recipe file {file}.{nearest(short, known)} Recipes that come with teabert: {', '.join(known)}."
    )


def builtin_recipes() -> list[Path]:
    """The recipe files inside the package."""
    return sorted(Path(str(resources.files("teabert") / "recipes")).glob("*.yaml"))


NO_YAML = (yaml.YAMLError, ValueError, RecursionError)
"""What the YAML reader raises; the last two for dates such as 2001-99-99 and for brackets without end."""


class _Strict(yaml.SafeLoader):
    """Safe YAML in which no key may stand twice, and yes, no, on and off are words: labels are often called so."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """A mapping, all its keys different."""
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode) and key.tag != MERGE]
        twice = next((key for key in keys if keys.count(key) > 1), None)
        if twice is not None:
            raise yaml.constructor.ConstructorError(None, None, f"the key '{twice}' stands twice", node.start_mark)
        return super().construct_mapping(node, deep)


MERGE, TRUTH = "tag:yaml.org,2002:merge", "tag:yaml.org,2002:bool"
_Strict.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in found if tag != TRUTH]
    for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Strict.add_implicit_resolver(TRUTH, re.compile("^(true|True|TRUE|false|False|FALSE)$"), list("tTfF"))


def read_yaml(file: Path) -> dict[str, Any]:
    """A YAML mapping; anything else is the user's mistake."""
    try:
        given = yaml.load(file.read_text(encoding="utf-8"), Loader=_Strict)
    except UnicodeDecodeError as error:
        raise UserError(f"{file} is not UTF-8 text: {error.reason} at byte {error.start}.") from None
    except NO_YAML as error:
        raise UserError(f"{file} is not valid YAML: {' '.join(str(error).split())}") from None
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}.") from None
    if not isinstance(given, dict):
        raise UserError(f"{file} must hold a mapping of recipe keys, such as 'tasks: [sst]'.")
    return given


def apply_change(given: dict[str, Any], change: str) -> None:
    """One `--set train.lr=3e-5` written into the mapping."""
    key, equals, value = change.partition("=")
    if not equals or not key:
        raise UserError(f"--set {change!r} is not of the form key=value, such as --set train.lr=3e-5.")
    try:
        parsed = yaml.load(value, Loader=_Strict)
    except NO_YAML as error:
        raise UserError(f"--set {change!r}: the value is not valid YAML: {' '.join(str(error).split())}") from None
    if isinstance(parsed, str):  # YAML reads 3e-5 as text
        parsed = _number(parsed)
    *path, last = key.split(".")
    place = given
    for part in path:
        inner = place.get(part)
        if isinstance(inner, str):  # injection: attention becomes a mapping
            inner = {"method": inner}
        if isinstance(inner, list) and part != "tasks":
            raise UserError(f"--set {change!r}: '{part}' is a list; give it whole, as in --set '{part}=[input, gate]'.")
        if isinstance(inner, list):  # tasks: [sst] becomes a mapping
            inner = {str(name): None for name in inner}
        place[part] = inner = dict(inner) if isinstance(inner, Mapping) else {}
        place = inner
    place[last] = parsed


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def to_yaml(recipe: Recipe) -> str:
    """The complete recipe, every default written out; loads back to an equal recipe."""
    return yaml.safe_dump(recipe.model_dump(mode="json"), sort_keys=False, width=110)
