# `make help` lists the targets. Everything runs in the virtual environment .venv.
#
#   PYTHON       the interpreter the environment is made from (3.11 or newer)
#   TORCH_INDEX  a package index to take torch from, and only torch: PyTorch's CPU builds, for example, are at
#                https://download.pytorch.org/whl/cpu (the default index has builds with CUDA, several GB)
#   WHEELS       a folder of wheels to look in first; with PIP_NO_INDEX=1 in the environment, the only place
#   SEED         the seed of the demo
#   PYTEST       arguments for pytest, as in: make test PYTEST='-q -k ledger'
#   WORKERS      number of processes that run tests in parallel: auto, one more than cores; 0 runs them in one process
#   SUITE        arguments for the runner of tests, as in: make test SUITE='--seed 1'; SUITE=--help explains them
#   NIGHTLY      parts of the nightly tests, as in: make nightly NIGHTLY='browser chaos'; NIGHTLY=--list names them and what they need
#   SHAKE        arguments for the shake, as in: make shake SHAKE='--base HEAD~3'
#   BENCH        arguments for the bench, as in: make bench BENCH='--rounds 1 --skip sf', a Unity player: BENCH=unity, 1,000 sessions: BENCH=sessions, all: BENCH=--help
#   GPU          arguments for the GPU suite, as in: make gpu GPU='updates waits'; GPU=--list names its checks
#   SBOM         extras for the bill of materials, as in: make sbom SBOM='learner certs'; the default is those of the images
#   FUZZ         arguments for the fuzzer, as in: make fuzz FUZZ='http --seconds 600'; FUZZ=--list names its targets
#   MUTANTS      arguments for the mutants, as in: make mutants MUTANTS='learner/service/ingest/ledger.py --sample 60'
#   CHAOS        arguments for the chaos runs, as in: make chaos CHAOS='--seconds 120 --seeds 1'
#   SOAK         arguments for the soak, as in: make soak SOAK='--seconds 3600'
#   GATES        arguments for the gates, as in: make gates GATES='cartpole-ppo --seeds 1'; GATES=--list names them

PYTHON ?= python3
VENV ?= .venv
TORCH_INDEX ?=
WHEELS ?=
SEED ?= 1
PYTEST ?=
WORKERS ?= auto
SUITE ?=
NIGHTLY ?=
SHAKE ?=
BENCH ?=
GATES ?=
CHAOS ?=
SOAK ?=
GPU ?=
SBOM ?=
FUZZ ?=
MUTANTS ?=

PY := $(VENV)/bin/python
# What does not need make, for systems without it; it reads these variables from the environment.
TASKS := $(PYTHON) tasks.py
export VENV TORCH_INDEX WHEELS WORKERS SUITE

.DEFAULT_GOAL := help
.PHONY: help venv lint types imports test test-ci nightly shake costs fuzz mutants chaos soak bench gates gpu demo sbom audit generate format clean distclean

help: ## print this help
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

venv: ## create or update the virtual environment
	@$(TASKS) venv

lint: ## check for mistakes and style
	@$(TASKS) lint

types: ## check the types, for Linux, macOS and Windows
	@$(TASKS) types

imports: ## check the import rules between packages
	@$(TASKS) imports

test: ## run every check and the unit tests, before a change goes in (4 minutes)
	@$(TASKS) test $(PYTEST)

test-ci: ## run the tests that start processes or take seconds, which `make test` leaves out
	@$(TASKS) test-ci $(PYTEST)

nightly: ## run what is too long for each change (hours; NIGHTLY='browser chaos': these parts)
	@$(TASKS) nightly $(NIGHTLY)

shake: ## run the changed test files ten times, shuffled, on a busy machine (5 minutes)
	@$(TASKS) shake $(SHAKE)

costs: ## record the processor time of each test file, by which they are split between processes
	@$(TASKS) costs

fuzz: ## fuzz the decoders of outside bytes with atheris (hours; Linux; FUZZ='http --seconds 600')
	@$(TASKS) fuzz $(FUZZ)

mutants: ## check the tests of modules with mutants of these (Linux; MUTANTS='learner/service/ingest/ledger.py --sample 60')
	@$(TASKS) mutants $(MUTANTS)

bench: venv ## compare with other trainers and with this machine's limits
	@$(PY) -m tests.tools.bench $(BENCH)

chaos: venv ## train amid 200 faults in ten minutes, for three seeds, and check what happened (needs root)
	@$(PY) -m tests.nightly.chaos $(CHAOS)

soak: venv ## train for half an hour, and measure the growth of every process
	@$(PY) -m tests.nightly.chaos.soak $(SOAK)

gates: venv ## train everything that must be learned, and report the results (hours; GATES=quick: under 45 minutes)
	@$(PY) -m tests.tools.gates $(GATES)

gpu: venv ## compare training on a GPU with training on a CPU, and measure its speed
	@$(PY) -m tests.tools.gpu $(GPU)

demo: ## train CartPole with a learner and two actors (SEED=1)
	@$(TASKS) demo --seed $(SEED)

sbom: venv ## print what the images contain, with versions and licenses, as CycloneDX
	@$(PY) deploy/sbom.py $(SBOM)

audit: ## look the pinned packages up in databases of known faults (needs a network)
	@$(TASKS) audit

generate: venv ## regenerate the protobuf code from protos/, and the schema of run files
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" $(PY) protos/generate.py
	$(VENV)/bin/rollcast check-config --schema >learner/run_files/rollcast.schema.json

format: venv ## format the code and apply automatic fixes
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix .

clean: ## remove caches and builds
	rm -rf .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis build dist
	find protos learner actor_client tests deploy -name __pycache__ -prune -exec rm -rf {} +

distclean: clean ## also remove the virtual environments
	rm -rf $(VENV) .venv-sb3 .venv-sf .venv-mlagents
