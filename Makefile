# `make demo` shows what it does, `make test` checks a change, `make docs` builds the pages.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMPS := $(VENV)/.stamps
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help demo test test-all lint bench docs clean

help:
	@echo "make demo      install into .venv and run the demonstration"
	@echo "make test      lint, types and the fast tests"
	@echo "make test-all  the same with the slow tests"
	@echo "make lint      ruff and mypy only"
	@echo "make bench     speed against the PyTorch reference"
	@echo "make docs      build the documentation into site/"
	@echo "make clean     remove what these made, .venv included"

demo: $(STAMPS)/plots
	$(BIN)/collabnets demo

lint: $(STAMPS)/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint
	$(BIN)/python -m pytest

test-all: lint
	$(BIN)/python -m pytest -m "slow or not slow"

bench: $(STAMPS)/bench
	$(BIN)/python -m benchmarks

docs: $(STAMPS)/docs
	$(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) site build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMPS)/venv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "collabnets needs Python 3.11 or newer; name one with: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)
	@mkdir -p $(STAMPS)
	@touch $@

# One stamp an extra: pip runs again only when pyproject.toml has changed.
$(STAMPS)/%: pyproject.toml | $(STAMPS)/venv
	@echo "installing collabnets[$*] into $(VENV)"
	@$(PIP) --editable '.[$*]'
	@touch $@
