# `make help` lists what there is. Everything runs in a virtual environment of its own, .venv.
#
#   PYTHON       the interpreter the environment is made from (3.11 or newer)
#   TORCH_INDEX  a package index to take torch from, and only torch: PyTorch's CPU builds, for example, are at
#                https://download.pytorch.org/whl/cpu (the default index has builds with CUDA, several GB)
#   WHEELS       a folder of wheels to look in first; with PIP_NO_INDEX=1 in the environment, the only place
#   SEED         the seed of the demo
#   PYTEST       arguments for pytest, as in: make test PYTEST='-q -k ledger'
#   WORKERS      how many processes run tests side by side: auto, as many as there are cores; 0 runs them in one
#   BENCH        arguments for the bench, as in: make bench BENCH='--rounds 1 --skip sf', or with a Unity player: BENCH=unity
#   GPU          arguments for the GPU suite, as in: make gpu GPU='updates waits'; GPU=--list names its checks
#   GATES        arguments for the gates, as in: make gates GATES='cartpole-ppo --seeds 1'; GATES=--list names them

PYTHON ?= python3
VENV ?= .venv
TORCH_INDEX ?=
WHEELS ?=
SEED ?= 1
PYTEST ?=
WORKERS ?= auto
BENCH ?=
GATES ?=
GPU ?=

PY := $(VENV)/bin/python
RUN_TESTS := $(PY) -m pytest -n $(WORKERS) --maxprocesses 8 --dist worksteal
PIP_INSTALL := $(PY) -m pip install --quiet -c constraints.txt $(if $(WHEELS),--find-links '$(WHEELS)')
INSTALLED := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help venv lint types imports test test-all bench gates gpu demo generate format clean distclean

help: ## print this
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

venv: $(INSTALLED) ## make the virtual environment, or bring it up to date

$(PY):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "$(PYTHON) is older than Python 3.11; name a newer one: make venv PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "$(PYTHON) has no venv module; on Debian: apt-get install python3-venv" >&2; exit 1; }

$(INSTALLED): pyproject.toml constraints.txt | $(PY)
	@echo "installing into $(VENV) (a few minutes the first time)"
	@$(if $(TORCH_INDEX),$(PIP_INSTALL) --no-deps --index-url '$(TORCH_INDEX)' torch)
	@$(PIP_INSTALL) -e '.[learner,actor,gym,box2d,unity,plots,wandb,dev]'
	@touch $@

lint: venv ## look for mistakes and style
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

types: venv ## check the types
	$(VENV)/bin/mypy

imports: venv ## check which package imports which
	$(VENV)/bin/lint-imports

test: venv lint types imports ## run every check and the quick tests (minutes)
	$(RUN_TESTS) -m 'not slow' $(PYTEST)

test-all: venv ## run the slow tests, which `make test` leaves out
	$(RUN_TESTS) -m slow $(PYTEST)

bench: venv ## compare with other trainers and with this machine's limits
	@$(PY) -m tests.bench $(BENCH)

gates: venv ## train everything that must be learned, and say what it came to (under two hours)
	@$(PY) -m tests.gates $(GATES)

gpu: venv ## look whether a GPU trains as a CPU does, and how fast
	@$(PY) -m tests.gpu $(GPU)

demo: venv ## train CartPole here: a learner and two actors (SEED=1)
	@$(PY) deploy/demo.py --seed $(SEED)

generate: venv ## regenerate the protobuf code from protos/
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" $(PY) protos/generate.py

format: venv ## format the code and repair what can be repaired
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix .

clean: ## remove caches and builds
	rm -rf .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis build dist
	find protos learner actor_client tests deploy -name __pycache__ -prune -exec rm -rf {} +

distclean: clean ## remove the virtual environments as well
	rm -rf $(VENV) .venv-sb3 .venv-sf .venv-mlagents
