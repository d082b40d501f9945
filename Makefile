# Two commands set everything up: `make demo` shows the main job, `make test` passes the tests.
# Both make their own virtual environment in .venv, and are quick the second time.

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)

.PHONY: demo test lint types unit scenarios clean

demo: $(VENV)/.installed
	$(BIN)/python -m engine demo
	$(BIN)/python -m sim demo scenarios

test: lint types unit scenarios

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed-dev
	$(BIN)/mypy

scenarios: $(VENV)/.installed-dev
	$(BIN)/python -m sim check scenarios

unit: $(VENV)/.installed-dev
	$(BIN)/python -m pytest

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "Fencepost needs Python 3.11 or newer, and found none on the PATH." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml | $(BIN)/python
	$(PIP) --editable '.[sim]'
	@touch $@

$(VENV)/.installed-dev: pyproject.toml | $(BIN)/python
	$(PIP) --editable '.[sim,dev]'
	@touch $@ $(VENV)/.installed
