"""Tables that the site makes of the code when it is built: `<!-- made: NAME -->` in a page becomes the table MADE[NAME].

So an option, a command or a route is described once, where it is defined, and the pages cannot fall behind.
"""

import html
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from mkdocs.exceptions import PluginError
from tables import code, listed, options, table, words

from teabert.catalogue import ENCODERS
from teabert.config import Recipe, TrainSettings, builtin_recipes
from teabert.heads import ANSWERS, READERS
from teabert.injections import INJECTIONS, Injection
from teabert.losses import LOSSES
from teabert.metrics import METRICS
from teabert.sampling import SamplingSettings
from teabert.shapes import BERT_BASE
from teabert.tasks import TASKS, Task
from teabert.tasks.base import Extra, HeadChoice
from teabert.tasks.kinds import KINDS
from teabert.weighting import WEIGHTINGS

ROOT = Path(__file__).parent.parent
MARK = re.compile(r"^<!-- made: ([a-z-]+) -->$", re.MULTILINE)
LOADED = re.compile(r"""<(?:script|link|img|iframe|source)\b[^>]*\b(?:src|href)=["']?(?:https?:)?//[^>]*>""")
SITES = ("embedded", "normalised", "shift", "projected", "prefixes", "context", "attended", "fed_forward")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """What MkDocs calls for every page's text."""
    return MARK.sub(lambda found: MADE[found[1]](), markdown)


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """What MkDocs calls for every page's HTML: refused where a reader's browser would have to ask another host."""
    if found := LOADED.search(output):
        raise PluginError(f"{page.file.src_uri} loads from another host: {found[0]}. Put the file into docs/.")
    return output


# methods


def methods(known: Mapping[str, Any]) -> str:
    """A section for each method of a list: what it is, and its options"""
    return "\n".join(section(name, method) for name, method in known.items())


def section(name: str, method: Any) -> str:
    """One method"""
    described = [_text(method), *_conditions(method)]
    config = method.Config
    hint = (inspect.getdoc(config) or "").partition("; ")[2]  # Options of NAME; what else there is to say
    if config.model_fields and hint:
        described.append(hint[0].upper() + hint[1:])
    text = "\n".join(f"<p>{words(part)}</p>" for part in described)
    return f"\n### `{name}`\n\n{text}\n" + (options(config) if config.model_fields else "\n<p>No options.</p>\n")


def _text(method: Any) -> str:
    """What is said of it: an injection has a file of its own, whose opening says more than the class"""
    if isinstance(method, type) and issubclass(method, Injection) and method is not Injection:
        return inspect.getdoc(sys.modules[method.__module__]) or ""
    return inspect.getdoc(getattr(method, "function", method)) or ""


def _conditions(method: Any) -> Iterator[str]:
    if hasattr(method, "kinds"):
        yield f"For tasks of kind {', '.join(method.kinds)}."
    if getattr(method, "apart", False):
        yield "It needs the two texts of a pair encoded apart."


def injections() -> str:
    """Where each injection enters, how many numbers it has, whether it folds"""
    rows = []
    for name, method in INJECTIONS.items():
        mine, both = (_count(method, tasks) for tasks in (("one",), ("one", "two")))
        sites = [site for site in SITES if getattr(method, site) is not getattr(Injection, site)]
        counts = f"{both - mine:,}", f"{2 * mine - both:,}"
        facts = ("yes" if fact else "no" for fact in (method.exact_at_start, method.foldable))
        rows.append((f'<a href="#{name}">{code(name)}</a>', listed(sites) or "nowhere", *counts, *facts))
    titles = ("method", "enters at", "numbers for each task", "numbers shared", "starts as plain BERT", "folds")
    return table(titles, rows)


def _count(method: type[Injection], tasks: tuple[str, ...]) -> int:
    with torch.device("meta"):
        return sum(each.numel() for each in method(method.Config(), BERT_BASE, tasks).parameters())


def kinds() -> str:
    """What each kind of task implies"""
    rows = [
        (
            code(name),
            listed(loss for loss, each in LOSSES.items() if name in each.kinds),
            listed(answer for answer, each in ANSWERS.items() if name in each.kinds),
            listed(dict.fromkeys((*kind.metrics, *kind.accepts))),
        )
        for name, kind in KINDS.items()
    ]
    return table(("kind", "losses", "answers", "metrics"), rows)


def metrics() -> str:
    """What each metric is"""
    return table(
        ("metric", "meaning"), [(code(name), words(inspect.getdoc(each.compute))) for name, each in METRICS.items()]
    )


# what comes with teabert


def known_tasks() -> str:
    """The built-in tasks"""
    rows = [
        (code(name), listed(task.texts), code(task.kind), listed(task.all_metrics), words(task.source))
        for name, task in TASKS.items()
    ]
    return table(("task", "text", "kind", "metrics", "source"), rows)


def known_encoders() -> str:
    """The encoders that are known by name"""
    rows = [
        (code(name), words(each.shape), each.parameters, words(each.licence), words(each.tuned_on))
        for name, each in ENCODERS.items()
    ]
    return table(("encoder", "shape", "parameters", "licence", "tuned on"), rows)


def known_recipes() -> str:
    """The recipes of the package, and the comment at their head"""
    rows = []
    for file in builtin_recipes():
        lines = file.read_text(encoding="utf-8").splitlines()
        comment = " ".join(line.removeprefix("#").strip() for line in lines if line.startswith("#"))
        rows.append((code(file.stem), words(comment)))
    return table(("recipe", "what it is"), rows)


def speed() -> str:
    """The measured tables as they are kept, their titles one level lower, and their figures"""
    return "\n\n".join(measured(file) for file in sorted((ROOT / "results" / "speed").glob("*.md")))


def measured(file: Path) -> str:
    """A benchmark's tables, and its figure where it drew one"""
    text = re.sub(r"^#", "##", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
    drawn = file.with_suffix(".svg")
    if not drawn.exists():
        return text
    what = html.escape(text.partition("\n")[0].lstrip("# "))
    picture = drawn.read_text(encoding="utf-8").partition("<svg")[2]
    picture = re.sub(r"<(metadata|style)\b.*?</\1>", "", picture, flags=re.DOTALL)  # a style would reach the whole page
    picture = re.sub(r"\s*\n\s*", " ", picture)  # an empty line would end the figure
    return f'{text}\n<figure class="drawn" role="img" aria-label="{what}; its numbers are above"><svg{picture}</figure>\n'


# command line and server


def commands() -> str:
    """Every command with its arguments and options"""
    import typer.main

    from teabert.cli import app

    return "\n".join(_commands("teabert", typer.main.get_command(app)))


def _commands(path: str, command: Any) -> Iterator[str]:
    if path != "teabert":
        yield _command(path, command)
    for name, each in getattr(command, "commands", {}).items():
        yield from _commands(f"{path} {name}", each)


def _command(path: str, command: Any) -> str:
    """One command, as its --help has it"""
    import typer

    context = typer.Context(command)
    records = [each.get_help_record(context) for each in command.params]
    rows = [(code(name), words(said)) for name, said in (each for each in records if each)]
    text = f"\n## `{path}`\n\n<p>{words(command.help or '')}</p>\n"
    return text + (table(("argument or option", "meaning"), rows) if rows else "")


def server_settings() -> str:
    """Every setting of the server"""
    from teabert.serving.settings import describe_settings

    rows = [
        (code(name), code(default) if default else "<em>none</em>", words(help))
        for name, default, help in describe_settings()
    ]
    return table(("setting", "default", "meaning"), rows)


def _app() -> Any:
    """The app over a model without tasks, only to be looked at"""
    from types import SimpleNamespace

    from teabert.serving.app import make_app
    from teabert.serving.settings import ServeSettings

    return make_app(SimpleNamespace(tasks={}), ServeSettings(admin_token="not a secret"), SimpleNamespace())  # type: ignore[arg-type]


def routes() -> str:
    """Every route of the server"""
    rows = [
        (code(f"{method.upper()} {path}"), words(facts.get("description") or facts["summary"]))
        for path, each in _app().openapi()["paths"].items()
        for method, facts in each.items()
    ]
    return table(("route", "what it does"), rows)


def statuses() -> str:
    """Every way in which the server says no"""
    from teabert.serving.describing import WHAT
    from teabert.serving.problems import TYPES

    return table(
        ("status", "error_type", "when"), [(code(each), code(TYPES[each]), words(said)) for each, said in WHAT.items()]
    )


def counters() -> str:
    """Every counter of the server"""
    from teabert.serving.metrics import Metrics

    found = [each for each in Metrics().registry.collect() if each.name.startswith("teabert_")]
    rows = [(code(each.name), each.type, words(each.documentation)) for each in found]
    return table(("metric", "type", "meaning"), rows)


MADE: dict[str, Callable[[], str]] = {
    "injections": injections,
    "injection-options": lambda: methods(INJECTIONS),
    "reader-options": lambda: methods(READERS),
    "answer-options": lambda: methods(ANSWERS),
    "loss-options": lambda: methods(LOSSES),
    "weighting-options": lambda: methods(WEIGHTINGS),
    "kinds": kinds,
    "metrics": metrics,
    "recipe": lambda: options(Recipe),
    "task": lambda: options(Task, "tasks.NAME."),
    "head": lambda: options(HeadChoice, "tasks.NAME.head."),
    "extra": lambda: options(Extra, "tasks.NAME.extra.OTHER."),
    "sampling": lambda: options(SamplingSettings, "sampling."),
    "train": lambda: options(TrainSettings, "train."),
    "known-tasks": known_tasks,
    "known-encoders": known_encoders,
    "known-recipes": known_recipes,
    "speed": speed,
    "commands": commands,
    "server-settings": server_settings,
    "routes": routes,
    "statuses": statuses,
    "counters": counters,
}
"""The one list; to have a table made, add a line."""
