# Two commands do everything on a fresh machine: `make demo` and `make test`.
# PYTHON chooses the interpreter, PIP_ARGS is handed to pip (for another index or a local CPU torch).
PYTHON   ?= $(shell command -v python3.11 || command -v python3)
PIP_ARGS ?=
VENV     := .venv
BIN      := $(VENV)/bin
DEMO     ?=
ORACLE   ?=
FAULTS   ?=
TESTS    ?= tests

.PHONY: help demo test check check-deep conform mutate oracle fuzz faults vllm bench lint format draw install tools clean

help:  ## say what there is
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## /  make \1\t/' | expand -t 20

demo: install  ## a trained model grows from 2 engines to 4 and shrinks back while it serves (DEMO="--path 1,3,1")
	$(BIN)/elasticfsm demo $(DEMO)

test: install tools  ## lint, stale diagrams, all tests (CPU)
	$(MAKE) --no-print-directory lint
	$(BIN)/elasticfsm draw --check
	$(BIN)/elasticfsm schema --check
	$(BIN)/python -m pytest $(TESTS)

check: install  ## explore every shipped protocol and every faulty one
	$(BIN)/elasticfsm check

check-deep: install  ## the checker's own tests at sizes that take minutes each: explorers, reductions, faults, rules of the switch
	ELASTICFSM_DEEP=1 $(BIN)/python -m pytest tests/core/check tests/oracles tests/runtime/faults --timeout 3600

mutate: install  ## one-edit mistakes in the shipped protocols are made and checked (about 50 CPU minutes; goes on where it stopped; EVERY=8: a sample)
	@mkdir -p .mutants
	failed=0; for name in serving rebalance scale_up scale_down; do \
	  case $$name in scale_*) every=$(or $(EVERY),1);; *) every=1;; esac; \
	  $(BIN)/elasticfsm mutate $$name --every $$every --jobs 2 --json .mutants/$$name.jsonl --explained tests/mutants/$$name.yaml || failed=1; \
	done; exit $$failed

conform: install  ## every edge that the checker explored, walked on the real interpreters, conductor and monitors
	$(BIN)/elasticfsm conform

oracle: install  ## SPIN judges every protocol and patch as well; exit 1 if it disagrees (ORACLE="--sizes 2+1")
	@command -v spin >/dev/null && command -v gcc >/dev/null || tools/system-packages spin gcc libc6-dev
	$(BIN)/python -m tests.oracles $(ORACLE)

fuzz: install  ## the stateful test with many more examples
	ELASTICFSM_EXAMPLES=2000 $(BIN)/python -m pytest tests/stateful --timeout 3600

vllm: install  ## the observer in vLLM's real busy loop (an environment of 4 GB in .venv-vllm; not part of make test)
	PYTHON="$(PYTHON)" PIP_ARGS="$(PIP_ARGS)" tools/vllm-venv .venv-vllm
	ELASTICFSM_VLLM_VENV=.venv-vllm $(BIN)/python -m pytest tests/vllm

faults: install  ## kill, stop, delay, break and cut everybody everywhere, under 60 minutes (FAULTS="--only scale_up/new")
	ELASTICFSM_DEEP=1 $(BIN)/python -m pytest tests/runtime/known_bugs
	$(BIN)/elasticfsm faults --jobs 2 --record docs $(FAULTS)

bench: install  ## what a rescale costs, in ratios measured side by side
	$(BIN)/elasticfsm bench growth

lint: install  ## ruff, mypy, spec lint
	$(BIN)/ruff check elasticfsm runtime tests tools
	$(BIN)/ruff format --check elasticfsm runtime tests tools
	$(BIN)/mypy -p elasticfsm
	$(BIN)/elasticfsm lint

format: install  ## ruff, writing
	$(BIN)/ruff check --fix elasticfsm runtime tests tools
	$(BIN)/ruff format elasticfsm runtime tests tools

draw: install tools  ## regenerate diagrams/ and the schema
	$(BIN)/elasticfsm draw
	$(BIN)/elasticfsm schema

install: $(VENV)/installed  ## a virtual environment with everything

$(VENV)/installed: pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed; give it as PYTHON=/path/to/python3"; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(PYTHON) is older than 3.11; give another as PYTHON=..."; exit 2; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || tools/system-packages python3-venv
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q $(PIP_ARGS) -c constraints.txt torch   # alone and first: the CPU build
	$(BIN)/pip install -q $(PIP_ARGS) -c constraints.txt -e '.[dev]'
	@touch $@

tools:
	@command -v dot >/dev/null && command -v mscgen >/dev/null || tools/system-packages graphviz mscgen

clean:  ## remove the virtual environment and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis dist build *.egg-info
