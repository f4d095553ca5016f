# Each target does all of its set-up itself: Python 3.11 and make are enough. PYTHON=python3.13 is another one, in
# environments of its own. 3.11's is .venv, where editors look for it.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VERSION := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
SUFFIX := $(patsubst -3.11,,-$(VERSION))
VENV := .venv$(SUFFIX)
PLAIN := .venv-plain$(SUFFIX)
LOWEST := .venv-lowest$(SUFFIX)
CONSTRAINTS := constraints/$(VERSION).txt
PIP_INSTALL := -m pip install --quiet --disable-pip-version-check --constraint $(CONSTRAINTS)
# Seconds matter on few cores: one test process each with one thread beats one with many. A module's tests stay
# together (loadfile), so that what they share is made once.
WORKERS ?= 2
PYTEST = OMP_NUM_THREADS=1 $(VENV)/bin/python -m pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder
# Python files are compiled once, not again by every worker and every command that a test starts.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: quickstart test test-fast test-all fuzz test-plain test-lowest pytest pytest-all lint format docs dist lock audit clean

quickstart: $(VENV)/ready
	$(VENV)/bin/familiar quickstart

# All at once: tests wait now and then, for a process or a page, and the type checker fills the gaps.
test: $(VENV)/ready $(PLAIN)/ready
	$(MAKE) --jobs 3 lint test-plain pytest

pytest: $(VENV)/ready
	$(PYTEST) -m "not plain and not exhaustive"

# For the inner loop: no training, no export, no server, no browser.
test-fast: $(VENV)/ready
	$(PYTEST) -m "not plain and not exhaustive and not slow"

test-all: $(VENV)/ready $(PLAIN)/ready
	$(MAKE) --jobs 3 lint test-plain pytest-all

# Ends with the slowest tests, and those whose fixtures take longest to set up. Long tests wait for other processes, so
# that three at a time fill two cores.
pytest-all: WORKERS := 3
pytest-all: $(VENV)/ready
	$(PYTEST) -m "not plain" --hypothesis-profile thorough --durations=50

# Look for inputs that break what reads files and requests of others: for SECONDS each, going on where the last run ended.
SECONDS ?= 60
fuzz: $(VENV)/ready
	cd tests && ../$(VENV)/bin/python -m fuzzing --seconds $(SECONDS) --output ../.cache/fuzzing

test-plain: $(PLAIN)/ready
	$(PLAIN)/bin/python -m pytest --override-ini addopts=--strict-markers -m plain tests/plain

# With the oldest versions of dependencies that pyproject.toml allows, and the newest test tools. Old versions use what
# is deprecated by now, which is no error here.
test-lowest: $(LOWEST)/ready
	$(subst $(VENV)/,$(LOWEST)/,$(PYTEST)) -W ignore::DeprecationWarning -m "not plain and not exhaustive and not slow"

lint: $(VENV)/ready
	$(VENV)/bin/ruff check
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/pyright --pythonpath $(VENV)/bin/python
	$(VENV)/bin/lint-imports

# The documentation, into site/. A dead link, a missing page or any other warning is an error.
docs: $(VENV)/ready
	cd tests && ../$(VENV)/bin/python -m support.docs_tables
	$(VENV)/bin/zensical build --strict --clean

# Wheel, source archive, and the list of all software that the wheel brings (SBOM), into dist/. The same commit gives the
# same bytes. The SBOM is that of the wheel, installed with the tested versions (uv compares their hashes), and nothing
# else; what the wheels say themselves of the libraries in them is added.
dist: $(VENV)/ready
	rm -rf dist $(VENV)/installed
	$(VENV)/bin/python -m build --no-isolation
	$(VENV)/bin/twine check --strict dist/*
	$(PYTHON) -m venv --without-pip $(VENV)/installed
	$(VENV)/bin/uv pip install --quiet --python $(VENV)/installed --constraints requirements-locked.txt dist/*.whl
	$(VENV)/bin/cyclonedx-py environment $(VENV)/installed --pyproject pyproject.toml --output-reproducible \
		--output-file dist/sbom.cdx.json
	cd tests && ../$(VENV)/bin/python -m support.wheel_libraries ../dist/sbom.cdx.json ../$(VENV)/installed

# The tested versions, for each Python; of the first, which releases are made with, the hashes of their files too. To be
# made anew after each change of pyproject.toml. A version stays as long as it fits: UPGRADE=--upgrade takes the newest of
# all, UPGRADE='--upgrade-package numpy' of one.
COMPILE = $(VENV)/bin/uv pip compile pyproject.toml --extra dev --python-platform x86_64-manylinux_2_28 --no-annotate \
	--no-emit-index-url --custom-compile-command "make lock" --quiet
lock: $(VENV)/ready
	for version in 3.11.5 3.12 3.13 3.14; do \
		$(COMPILE) $(UPGRADE) --python-version $$version --output-file constraints/$${version%.5}.txt || exit; \
	done
	$(COMPILE) --python-version 3.11.5 --constraints constraints/3.11.txt --generate-hashes --output-file requirements-locked.txt

# Known vulnerabilities of what is tested. --strict: a package that the service does not know is an error, not a success.
audit: $(VENV)/ready
	$(VENV)/bin/pip-audit --strict --disable-pip --require-hashes --requirement requirements-locked.txt

format: $(VENV)/ready
	$(VENV)/bin/ruff check --fix
	$(VENV)/bin/ruff format

$(VENV)/ready: pyproject.toml $(CONSTRAINTS)
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python $(PIP_INSTALL) --editable '.[dev]'
	touch $@

# What the user with photos gets: the package without torch, and only pytest beside it.
$(PLAIN)/ready: pyproject.toml $(CONSTRAINTS) $(shell find src -type f ! -name '*.pyc')
	$(PYTHON) -m venv $(PLAIN)
	$(PLAIN)/bin/python $(PIP_INSTALL) . pytest
	touch $@

$(LOWEST)/ready: pyproject.toml $(VENV)/ready
	$(PYTHON) -m venv $(LOWEST)
	$(VENV)/bin/uv pip install --quiet --python $(LOWEST) --resolution lowest-direct --editable '.[all,milvus,ray]'
	$(VENV)/bin/uv pip install --quiet --python $(LOWEST) --editable '.[dev]'
	touch $@

clean:
	rm -rf .venv .venv-* build dist quickstart site .cache
