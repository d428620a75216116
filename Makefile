# Everything a fresh machine needs comes from here: make demo, make test, make check, make test-all.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Tests run in xdist workers: one thread each, or the workers' threads fight for the cores.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal

.PHONY: demo test test-all test-latest check format clean

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

test: $(VENV)/installed-dev
	$(PYTEST) -m 'not slow'

test-all: $(VENV)/installed-dev
	$(PYTEST)

# Against the newest transformers that there is, in a venv of its own: what it says is news, not a fault of the tree.
test-latest:
	$(PYTHON) -m venv $(VENV)-latest
	$(VENV)-latest/bin/python -m pip install --disable-pip-version-check -q --upgrade -e '.[hf,evaluation]' pytest hypothesis pyyaml transformers
	OMP_NUM_THREADS=1 $(VENV)-latest/bin/python -m pytest tests/hf
	$(VENV)-latest/bin/python -c 'import transformers; print("transformers", transformers.__version__)'

check: $(VENV)/installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyrefly check
	$(BIN)/lint-imports

format: $(VENV)/installed-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) $(VENV)-latest build dist .pytest_cache .ruff_cache .import_linter_cache
