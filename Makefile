# make demo      train and show the demo        make test      everything CI checks
# make install   .venv with all for development make clean     remove what make made
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo install test clean

demo: .venv/for-demo
	$(BIN)/teabert demo

install: .venv/for-development

test: .venv/for-development
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict  # --quiet would also keep --strict from counting warnings
	$(BIN)/python -m pytest -n 2

.venv/python-is-there:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "teabert needs Python 3.11 or newer, this is " + sys.version.split()[0] + "; set PYTHON=...")'
	$(PYTHON) -m venv .venv
	touch $@

# torch first and pinned: left to itself, pip may fetch a newer one with gigabytes of GPU libraries
.venv/for-demo: .venv/python-is-there pyproject.toml constraints.txt
	@echo "Installing (torch is large; minutes on a slow line) ..."
	$(PIP) torch
	$(PIP) -e '.[baseline]'
	touch $@

.venv/for-development: .venv/for-demo
	@echo "Installing what development needs ..."
	$(PIP) -e '.[dev]'
	touch $@

clean:
	rm -rf .venv build dist *.egg-info src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .schemathesis
