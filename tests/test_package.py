"""The installed package: light to import, whole without extras, every recipe loads."""

import pkgutil
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

import teabert
from teabert.config import builtin_recipes, load_recipe, parse_recipe, to_yaml

EXTRAS = (
    *("pyarrow", "datasets", "sklearn", "transformers", "scipy", "psutil", "hypothesis", "pytest", "matplotlib", "peft"),
    *("fastapi", "starlette", "uvicorn", "prometheus_client", "httptools", "uvloop", "onnx", "onnxruntime", "onnxscript"),
    *("sentence_transformers", "torchjd", "selenium", "httpx", "pandas"),
)


def python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_importing_teabert_imports_nothing_heavy():
    heavy = "{'torch', 'numpy', 'tokenizers', 'pydantic', 'rich', 'typer', 'yaml', 'huggingface_hub'}"
    done = python(f"import sys, teabert; print({heavy} & set(sys.modules))")
    assert done.stdout.strip() == "set()", done.stderr


def test_command_line_help_does_not_import_torch():
    done = python(
        "import sys\nfrom teabert import cli\nsys.argv = ['teabert', '--help']\n"
        "try:\n    cli.main()\nexcept SystemExit:\n    pass\nprint('torch' in sys.modules)"
    )
    assert done.stdout.splitlines()[-1] == "False", done.stderr


def test_every_module_imports_without_the_extras():
    names = [module.name for module in pkgutil.walk_packages(teabert.__path__, "teabert.")]
    assert len(names) > 30
    done = python(
        "import sys, importlib\n"
        f"for extra in {EXTRAS!r}: sys.modules[extra] = None\n"
        f"for name in {names!r}: importlib.import_module(name)\n"
        "print('all imported')"
    )
    assert done.stdout.strip() == "all imported", done.stderr


def test_prediction_does_not_import_training():
    done = python("import sys, teabert.predictor; print('teabert.training' in sys.modules)")
    assert done.stdout.strip() == "False", done.stderr


def test_missing_extra_names_its_install_command():
    done = python(
        "import sys\nsys.modules['sklearn'] = None\nfrom teabert.baseline import tfidf_predictions\n"
        "try:\n    tfidf_predictions('binary', [('a',), ('b',)], [0, 1], [('a',)])\n"
        "except ValueError as error:\n    print(error)"
    )
    assert "pip install 'teabert[baseline]'" in done.stdout, done.stderr


@pytest.mark.parametrize("file", builtin_recipes(), ids=lambda file: file.stem)
def test_every_recipe_loads_and_its_resolved_form_is_itself(file):
    import yaml

    recipe = load_recipe(file)
    assert recipe.name == file.stem
    assert parse_recipe(yaml.safe_load(to_yaml(recipe))) == recipe


def test_the_recipes_of_the_issue_are_there():
    assert {"demo", "sst-baseline", "all-baseline", "task-attention-baseline"} <= {file.stem for file in builtin_recipes()}


def test_public_names_are_importable():
    for name in teabert.__all__:
        assert getattr(teabert, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        teabert.nonsense  # noqa: B018


def test_every_pinned_version_takes_the_oldest_python_that_teabert_does():
    pins = (Path(__file__).parent.parent / "constraints.txt").read_text(encoding="utf-8")
    names = [line.partition("==")[0] for line in pins.splitlines() if "==" in line and not line.startswith("#")]
    wanted = {name: distribution(name).metadata["Requires-Python"] for name in names}
    assert len(wanted) > 40
    oldest = distribution("teabert").metadata["Requires-Python"].removeprefix(">=")
    assert not [name for name, taken in wanted.items() if taken and not SpecifierSet(taken).contains(f"{oldest}.0")]
