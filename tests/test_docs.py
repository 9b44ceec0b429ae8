"""The documentation holds: its commands are commands, its recipes recipes, its code runs, its messages are real."""

import contextlib
import io
import re
import runpy
import shlex
import shutil
import sys
from pathlib import Path
from unittest import mock

import pytest
import typer
import yaml

import teabert
import tiny
from teabert import cli
from teabert.config import Recipe, TrainSettings, parse_recipe, read_yaml
from teabert.heads import ANSWERS, READERS
from teabert.injections import INJECTIONS, Injection
from teabert.losses import LOSSES
from teabert.sampling import SamplingSettings
from teabert.serving.settings import ServeSettings
from teabert.tasks import TASKS, Task
from teabert.tasks.base import Extra, HeadChoice
from teabert.weighting import WEIGHTINGS

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
FENCE = re.compile(r"^```([a-z]*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SAVED = re.compile(r"Save this as `([\w.-]+)`")
ELSEWHERE = ("teabert demo", "teabert doctor", "teabert serve", "teabert predict runs/demo")
"""Minutes of training, asking other hosts, waiting for clients: such commands are parsed, not run."""


def named(page):
    return str(page.relative_to(ROOT))


def blocks(page):
    """(language, content, what stands before it) of every block of a page"""
    text = page.read_text(encoding="utf-8")
    return [(found[1], found[2], text[: found.start()]) for found in FENCE.finditer(text)]


def commands(content):
    """The teabert commands of a block, comments and prompts taken off"""
    lines = [line.strip().removeprefix("$ ") for line in content.replace("\\\n", " ").splitlines()]
    return [line for line in lines if line.startswith("teabert ")]


def parse(words):
    """Find the command that the words name, and let it parse the rest"""
    command, path = typer.main.get_command(cli.app), []
    while words and words[0] in getattr(command, "commands", {}):
        path.append(words[0])
        command, words = command.commands[words[0]], words[1:]
    assert path, f"there is no such command: {words}"
    with contextlib.suppress(typer.Exit):  # some options print and stop
        command.make_context(" ".join(path), list(words))
    return command


FOLLOWED = (DOCS / "quick-start.md", DOCS / "adding-tasks.md")
"""What they do to the run folder is looked at, each in a test of its own."""
WITH_CODE = [
    page for page in PAGES if page not in FOLLOWED and any(language == "python" for language, _, _ in blocks(page))
]


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_command_line_is_one(page, capsys):
    for language, content, _ in blocks(page):
        if language in ("", "sh", "console", "text"):
            for line in commands(content):
                parse([word for word in shlex.split(line, comments=True)[1:] if word not in ("--debug", "...")])


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_command_in_running_text_is_one(page):
    for span in re.findall(r"`teabert ([^`]+)`", FENCE.sub("", page.read_text(encoding="utf-8"))):
        words = [word for word in shlex.split(span) if word not in ("--debug", "...")]
        if words and words[0] not in ("--help", "--version"):
            command = typer.main.get_command(cli.app).commands[words[0]]
            known = {option for each in command.params for option in each.opts}
            assert {word for word in words if word.startswith("--")} <= known, span


def alternatives(content):
    """A block whose lines all begin with the same key shows that key several times: each line is a recipe's"""
    keys = re.findall(r"^(\w+):", content, re.MULTILINE)
    return content.splitlines() if len(keys) > len(set(keys)) else [content]


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_recipe_parses(page, tmp_path):
    file = tmp_path / "recipe.yaml"
    for language, content, _ in blocks(page):
        for given in alternatives(content) if language == "yaml" else []:
            file.write_text(given)
            parse_recipe({"tasks": ["sst", "quora"]} | read_yaml(file))


def run(line):
    """A command line as a user types it: the exit code, and what went to standard error"""
    said, argv = io.StringIO(), sys.argv
    sys.argv = shlex.split(line, comments=True)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
            cli.main()
    except SystemExit as ended:
        return ended.code or 0, said.getvalue()
    finally:
        sys.argv = argv
    return 0, said.getvalue()


FRONT = DOCS / "figures" / "teabert.svg"
"""It stands outside the site too, so it has a ground and colours of its own."""


@mock.patch.dict(INJECTIONS)
@mock.patch.dict(READERS)
@mock.patch.dict(ANSWERS)
@mock.patch.dict(TASKS)
def follow(page):
    """Do what a page says, from top to bottom, in the current folder; what it adds to lists is taken out again"""
    done = 0
    for language, content, before in blocks(page):
        if language == "yaml" and (name := SAVED.search(before.rpartition("\n\n")[0].rpartition("\n\n")[2])):
            Path(name[1]).write_text(content)
        if language == "python":
            Path("page.py").write_text(content)  # a file, so that options find their help beneath
            with contextlib.redirect_stdout(io.StringIO()):
                runpy.run_path("page.py", {"teabert": teabert})
            done += 1
        for line in commands(content) if language == "sh" else []:
            if not line.startswith(ELSEWHERE):
                code, said = run(line)
                assert code == 0, f"{line}\n{said}"
                done += 1
    return done


@pytest.fixture(scope="module")
def followed(tmp_path_factory):
    """A folder in which the quick start was followed, with a tiny encoder for MiniLM"""
    folder = tmp_path_factory.mktemp("followed")
    tiny.write_encoder(folder / "cache" / "encoders" / "minilm")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TEABERT_CACHE", str(folder / "cache"))
        patch.delenv("TEABERT_DATA", raising=False)
        patch.chdir(folder)
        follow(DOCS / "quick-start.md")
        yield folder


def test_the_quick_start_leaves_what_it_says(followed):
    assert (followed / "answers.csv").read_text().startswith("id,answer,probability,error\n")
    assert len((followed / "answers.jsonl").read_text().splitlines()) == 40
    for left in ("vectors.npy", "runs/frozen/scores.json", "runs/reviews/best/model.safetensors"):
        assert (followed / left).is_file()


def test_a_task_is_added_and_removed_as_the_page_says(followed):
    shutil.copytree("runs/reviews", "copies/reviews")
    assert follow(DOCS / "adding-tasks.md") == 6
    assert [file.name for file in Path("copies/reviews/tasks").iterdir()] == ["polite.task.safetensors"]
    assert not list(Path("runs/reviews/tasks").iterdir())


@pytest.mark.parametrize("page", WITH_CODE, ids=named)
def test_the_code_of_a_page_runs(page, followed):
    assert follow(page)


MESSAGES = [content for language, content, _ in blocks(DOCS / "troubleshooting.md") if language == "console"]


@pytest.mark.parametrize("content", MESSAGES, ids=lambda content: content.splitlines()[0].removeprefix("$ teabert "))
def test_every_message_is_the_real_one(content, followed):
    (line,) = commands(content)
    wanted = " ".join(content.splitlines()[1:])
    code, said = run(line)
    found = " ".join(said[said.index("teabert: ") :].split())
    assert code == 2
    assert re.fullmatch(re.escape(wanted).replace(r"\.\.\.", ".*"), found), found


# what is made of the code


@pytest.fixture(scope="module")
def hooks():
    pytest.importorskip("mkdocs", reason="mkdocs is not installed: pip install '.[docs]'")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(DOCS))
        import hooks

        yield hooks


def made(hooks, page):
    return hooks.on_page_markdown((DOCS / page).read_text(encoding="utf-8"))


def test_a_measured_table_brings_its_figure(hooks, tmp_path):
    (tmp_path / "growth.md").write_text("# What tasks cost\n\n| method |\n|---|\n| none |\n")
    assert hooks.measured(tmp_path / "growth.md").startswith("## What tasks cost\n")
    assert "<figure" not in hooks.measured(tmp_path / "growth.md")
    picture = '<?xml version="1.0"?>\n<svg width="9pt">\n<style>*{x: y}</style>\n\n<path d="M 0"/>\n</svg>\n'
    (tmp_path / "growth.svg").write_text(picture)
    figure = hooks.measured(tmp_path / "growth.md").partition("<figure")[2]
    assert 'aria-label="What tasks cost; its numbers are above"><svg width="9pt"> <path d="M 0"/> </svg>' in figure
    assert "\n\n" not in figure


@pytest.mark.parametrize("known", [INJECTIONS, READERS, ANSWERS, LOSSES, WEIGHTINGS])
def test_every_method_is_on_its_page_with_every_option(known, hooks):
    page = made(hooks, "methods.md")
    for name, method in known.items():
        section = page.partition(f"### `{name}`\n")[2].partition("\n### ")[0]
        assert "<p>" in section, name
        for option, field in method.Config.model_fields.items():
            assert f"<code>{option}</code>" in section
            assert hooks.words(field.description) in section


@pytest.mark.parametrize(
    ("page", "model", "prefix"),
    [
        ("recipes.md", Recipe, ""),
        ("recipes.md", Task, "tasks.NAME."),
        ("recipes.md", HeadChoice, "tasks.NAME.head."),
        ("recipes.md", Extra, "tasks.NAME.extra.OTHER."),
        ("recipes.md", SamplingSettings, "sampling."),
        ("recipes.md", TrainSettings, "train."),
        ("serving.md", ServeSettings, ""),
    ],
)
def test_every_key_is_on_its_page_with_its_help(page, model, prefix, hooks):
    text = made(hooks, page)
    for name, field in model.model_fields.items():
        assert f"<code>{prefix}{name}</code>" in text
        assert field.description
        assert hooks.words(field.description) in text


def test_every_command_and_every_strategy_is_on_its_page(hooks):
    page = made(hooks, "commands.md")
    for name in typer.main.get_command(cli.app).commands:
        assert f"## `teabert {name}`" in page
    strategies = SamplingSettings.model_json_schema()["properties"]["strategy"]["enum"]
    assert all(f"<code>{strategy}</code>" in made(hooks, "methods.md") for strategy in strategies)


def test_the_sites_are_the_hooks_of_an_injection_and_each_has_a_figure(hooks):
    others = {"first", "changes", "fold_into"}
    known = {name for name, each in vars(Injection).items() if callable(each) and not name.startswith("_")} - others
    assert set(hooks.SITES) == known - {"Config"}
    concepts = (DOCS / "concepts.md").read_text(encoding="utf-8")
    shown = set(re.findall(r'"figures/(\w+)\.svg"', concepts))
    assert shown | {FRONT.stem} == {figure.stem for figure in (DOCS / "figures").glob("*.svg")}
    assert shown >= set(hooks.SITES) - {"normalised", "shift"}  # they share the figures of `embedded` and `projected`


@pytest.mark.parametrize("figure", sorted({*(DOCS / "figures").glob("*.svg")} - {FRONT}), ids=lambda figure: figure.stem)
def test_figures_take_their_colours_from_the_page(figure):
    colours = set(re.findall(r'(?:fill|stroke)="([^"]+)"', figure.read_text(encoding="utf-8")))
    assert colours <= {"none", "currentColor", "var(--task, #b3400a)"}


def test_the_front_page_s_picture_has_colours_for_day_and_night_and_is_in_the_readme():
    style = FRONT.read_text(encoding="utf-8").partition("</style>")[0]
    day, night = style.split("@media (prefers-color-scheme: dark)")
    named = set(re.findall(r"--(\w+): #", day))
    assert named == set(re.findall(r"--(\w+): #", night)) == set(re.findall(r"var\(--(\w+)", style)) - {"own"}
    rest = FRONT.read_text(encoding="utf-8").partition("</style>")[2]
    assert not re.search(r"(?:fill|stroke)=|style=", rest)
    for page in (DOCS.parent / "README.md", DOCS / "index.md"):
        assert f"figures/{FRONT.name}" in page.read_text(encoding="utf-8")


def test_a_page_that_asks_another_host_is_refused(hooks):
    class Page:
        class file:
            src_uri = "index.md"

    here = '<script src="a.js"></script><a href="https://example.org">'
    assert hooks.on_post_page(here, page=Page) == here
    for there in ('<script async src="https://example.org/a.js">', "<link rel=stylesheet href=//example.org/a.css>"):
        with pytest.raises(Exception, match="loads from another host"):
            hooks.on_post_page(there, page=Page)


def test_every_page_is_in_the_navigation():
    def pages(entry):
        inside = entry.values() if isinstance(entry, dict) else entry
        return {entry} if isinstance(entry, str) else set().union(*map(pages, inside))

    listed = pages(yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"])
    assert listed == {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}


def test_results_in_the_readme_are_those_of_the_results_folder(tmp_path):
    filled = runpy.run_path(str(DOCS / "insert.py"))["filled"]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert filled(readme, ROOT) == readme, "run: python docs/insert.py"
    (tmp_path / "short.md").write_text("| a |\n", encoding="utf-8")
    once = filled("before\n<!-- from short.md -->\nold\n<!-- end -->\nafter", tmp_path)
    assert once == "before\n<!-- from short.md -->\n\n| a |\n\n<!-- end -->\nafter"
    assert filled(once, tmp_path) == once
