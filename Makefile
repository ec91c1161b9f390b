# `make demo` shows what sojourn does, `make test` proves it, `make quick` proves what matters most
# within a minute. Each sets everything up first, in .venv, from nothing but Python and make.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

export TF_CPP_MIN_LOG_LEVEL ?= 2

.PHONY: setup demo test quick check lint types layers pytest clients bench score serving soak fuzz faults format clean

demo: setup
	@$(BIN)/python -m sojourn.cli.main demo

test: setup check pytest

check: lint types layers

# Where PYTHONDONTWRITEBYTECODE is set, as it is in many containers, nothing else compiles what is
# run from here, and every process would do it for itself: half of the time that it takes to start.
setup: $(STAMP)
	@$(BIN)/python -m compileall -q src tests benchmarks

$(STAMP): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing sojourn and its tools into $(VENV) (a few minutes the first time) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@$(BIN)/python tests/install_browser.py
	@touch $(STAMP)

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

layers: setup
	$(BIN)/lint-imports

# A module at a time in each of several processes, two for a core: almost half of the time a test
# waits for a process to start or to end. What failed runs once more, alone. Modules come by name
# and not, as they would by themselves, by how many tests they have: among those with a single test
# are the longest, which would end alone.
PROCESSES ?= $(shell expr 2 \* $$(nproc))
APART := -n $(PROCESSES) --dist loadfile --no-loadscope-reorder --durations 40 --durations-min 2
pytest: setup clients
	$(BIN)/python tests/steady.py $(APART)

# Clients of the server that cannot be installed beside it, each in an environment of its own.
CLIENTS := build/clients
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check

clients: $(CLIENTS)/triton/.installed $(CLIENTS)/serving/.installed

$(CLIENTS)/triton/.installed: tests/real_clients/requirements-triton.txt | setup
	@$(PYTHON) -m venv --clear $(CLIENTS)/triton
	@$(PIP) --python $(CLIENTS)/triton/bin/python install -r $<
	@touch $@

$(CLIENTS)/serving/.installed: tests/real_clients/requirements-serving.txt | setup
	@rm -rf $(CLIENTS)/serving
	@$(PIP) install --no-deps --target $(CLIENTS)/serving -r $<
	@touch $@

quick: setup
	$(BIN)/ruff check .
	$(BIN)/python -m pytest -m quick

bench: setup
	$(BIN)/sojourn bench

# What sojourn and others leave behind; peers are installed below benchmarks/leaves_nothing/.venvs.
score: setup
	$(BIN)/python benchmarks/leaves_nothing --write

# Servers of models, loaded in turns by wrk and h2load; peers below benchmarks/serving/.venvs.
serving: setup
	$(BIN)/python benchmarks/serving --write

# Random sessions with random faults; a failure prints its seed. `make soak SESSIONS=600` is shorter.
SESSIONS ?= 20000
soak: setup
	$(BIN)/python benchmarks/soak.py --sessions $(SESSIONS)

# Spoilt requests of every protocol; a failure prints its seed and number.
REQUESTS ?= 100000
fuzz: setup
	$(BIN)/python benchmarks/fuzz.py --requests $(REQUESTS)

# Every fault of docs/faults.md, many times over; `make faults REPEATS=1` takes minutes. A fault
# that fails once has failed: nothing is tried again here.
REPEATS ?= 20
FAULTS := --faults --repeats $(REPEATS)
faults: setup clients
	$(BIN)/python -m pytest $(FAULTS) -n $(PROCESSES) --dist worksteal

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
