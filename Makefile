# Each target does all of its set-up itself: Python 3.11 and make are enough.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
PLAIN := .venv-plain
PIP_INSTALL := -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
# Seconds matter on few cores: one test process each with one thread beats one with many.
WORKERS ?= 2

.PHONY: quickstart test test-plain lint format clean

quickstart: $(VENV)/ready
	$(VENV)/bin/familiar quickstart

test: $(VENV)/ready lint test-plain
	OMP_NUM_THREADS=1 $(VENV)/bin/python -m pytest --numprocesses $(WORKERS) -m "not plain"

test-plain: $(PLAIN)/ready
	$(PLAIN)/bin/python -m pytest --override-ini addopts=--strict-markers -m plain tests/plain

lint: $(VENV)/ready
	$(VENV)/bin/ruff check
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/pyright --pythonpath $(VENV)/bin/python
	$(VENV)/bin/lint-imports

format: $(VENV)/ready
	$(VENV)/bin/ruff check --fix
	$(VENV)/bin/ruff format

$(VENV)/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python $(PIP_INSTALL) --editable '.[dev]'
	touch $@

# What the user with photos gets: the package without torch, and only pytest beside it.
$(PLAIN)/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(PLAIN)
	$(PLAIN)/bin/python $(PIP_INSTALL) . pytest
	touch $@

clean:
	rm -rf $(VENV) $(PLAIN) build dist quickstart
