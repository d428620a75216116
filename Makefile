# Everything a fresh machine needs comes from here: make demo, make test, make check, make test-all.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Tests run in xdist workers: one thread each, or the workers' threads fight for the cores.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal

# Another mixer: make exam MODEL=path/to/file.py:build
MODEL ?= examples/own_mixer.py:build

.PHONY: demo exam images figure3-cpu docs test test-all test-latest check bench sanitize neon format clean

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

$(VENV)/installed-images: $(VENV)/installed
	$(BIN)/python -m pip install --disable-pip-version-check -q -c constraints.txt -e '.[images]'
	@touch $@

demo: $(VENV)/installed
	$(BIN)/relnet compare copying --length 16

exam: $(VENV)/installed
	$(BIN)/relnet exam --model $(MODEL) --max-steps 800 --lrs 0.005 --num 100

# Runs lie outside of the tree (relnet sweep --help); the same command goes on after Ctrl-C.
figure3-cpu: $(VENV)/installed
	$(BIN)/relnet sweep figure3 --size cpu

test: $(VENV)/installed-dev
	$(PYTEST) -m 'not slow'

test-all: $(VENV)/installed-dev
	$(PYTEST)

images: $(VENV)/installed-images
	$(BIN)/relnet compare images

# Against the newest transformers that there is, in a venv of its own, on the pinned PyTorch: what it says is news, not a fault of the tree.
test-latest:
	$(PYTHON) -m venv $(VENV)-latest
	grep '^torch==' constraints.txt > $(VENV)-latest/torch.txt
	$(VENV)-latest/bin/python -m pip install --disable-pip-version-check -q --upgrade -c $(VENV)-latest/torch.txt \
		-e '.[hf,evaluation]' pytest hypothesis pyyaml transformers
	OMP_NUM_THREADS=1 $(VENV)-latest/bin/python -m pytest tests/hf
	$(VENV)-latest/bin/python -c 'import transformers; print("transformers", transformers.__version__)'

# A page a package, from the docstrings: open build/reference/index.html.
PUBLIC := ops nn tasks curvature train exam theory hf report claims recipes run sweep
docs: $(VENV)/installed-dev
	$(BIN)/pdoc -d google -o build/reference $(PUBLIC:%=relnet.%)

check: $(VENV)/installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyrefly check
	$(BIN)/lint-imports

# The kernels' tests on a build that stops at the first read or write out of bounds and at undefined behaviour. Leaks are not looked for:
# Python and PyTorch never free what they keep until the end.
sanitize: $(VENV)/installed-dev
	cmake -S . -B build/sanitize -DRELNET_SANITIZE=ON -DCMAKE_BUILD_TYPE=None
	cmake --build build/sanitize --parallel 2
	RELNET_KERNELS=$(CURDIR)/build/sanitize/librelnet_kernels.so LD_PRELOAD=$$(c++ -print-file-name=libasan.so) \
		ASAN_OPTIONS=detect_leaks=0 $(PYTEST) -m 'not slow' tests/ops/test_relation_cpu.py tests/ops/test_relation_cpu_rules.py tests/ops/test_linear_cpu.py \
		tests/ops/test_norm.py

# The kernels' tests on code for 64-bit ARM (NEON), cross-compiled and run by an emulator of its instructions. On Debian:
# apt install g++-aarch64-linux-gnu qemu-user-static
NEON_KERNELS := relation linear norm dispatch
neon: $(VENV)/installed-dev
	mkdir -p build/neon
	aarch64-linux-gnu-g++ -std=gnu++17 -O3 -ffp-contract=fast -fno-math-errno -Wall -Wextra -Wno-maybe-uninitialized -static -pthread \
		-DRELNET_ISA=baseline -Irelnet/ops/kernels $(NEON_KERNELS:%=relnet/ops/kernels/%.cpp) tests/ops/emulated_kernels.cpp -o build/neon/kernels
	RELNET_EMULATOR="qemu-aarch64-static build/neon/kernels" $(PYTEST) -m 'not slow' tests/ops/test_relation_cpu.py tests/ops/test_linear_cpu.py \
		tests/ops/test_norm.py -k 'not load and not process and not fork and not instruction and not memory'

# Nothing is timed whose tests are red. Both cores for half an hour; lines are added to results/bench.jsonl.
bench: $(VENV)/installed-dev
	$(PYTEST) -m 'not slow' tests/ops
	$(BIN)/python bench/relation.py --json results/bench.jsonl
	$(BIN)/python bench/relation.py --no-compiled --shape 1 4096 192 --rounds 3 --json results/bench.jsonl
	$(BIN)/python bench/relation_scaling.py --json results/bench.jsonl
	for activation in relu elu gelu; do \
		$(BIN)/python bench/relation.py --no-compiled --shape 8 258 192 --activation $$activation --json results/bench.jsonl || exit 1; done
	RELNET_ISA=avx2 $(BIN)/python bench/relation.py --no-compiled --shape 8 258 192 --json results/bench.jsonl
	$(BIN)/python bench/training_step.py --json results/bench.jsonl
	$(BIN)/python bench/linear.py --json results/bench.jsonl
	$(BIN)/python bench/decoding.py --long 100000 --json results/bench.jsonl

format: $(VENV)/installed-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) $(VENV)-latest build dist .pytest_cache .ruff_cache .import_linter_cache
