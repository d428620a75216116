# Everything a fresh machine needs comes from here: make demo, make test, make check, make test-all.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Tests run in xdist workers: one thread each, or the workers' threads fight for the cores.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal

# Another mixer: make exam MODEL=path/to/file.py:build
MODEL ?= examples/own_mixer.py:build

.PHONY: demo exam test test-all check format clean

# pip, not python: where a venv cannot be made whole, python alone is left behind.
$(BIN)/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "relnet needs Python 3.11 or newer; say which: make PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: $(BIN)/pip pyproject.toml constraints.txt CMakeLists.txt $(wildcard relnet/ops/kernels/*)
	$(BIN)/python -m pip install --disable-pip-version-check -q -c constraints.txt -e .
	@touch $@

$(VENV)/installed-dev: $(VENV)/installed
	$(BIN)/python -m pip install --disable-pip-version-check -q -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(VENV)/installed
	$(BIN)/relnet compare copying --length 16

exam: $(VENV)/installed
	$(BIN)/relnet exam --model $(MODEL) --max-steps 800 --lrs 0.002 --num 100

test: $(VENV)/installed-dev
	$(PYTEST) -m 'not slow'

test-all: $(VENV)/installed-dev
	$(PYTEST)

check: $(VENV)/installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyrefly check
	$(BIN)/lint-imports

format: $(VENV)/installed-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .import_linter_cache
