# make demo   the whole pipeline on this machine, on real parts
# make test   all tests
# make slurm-demo   the same pipeline on a real Slurm of two simulated nodes
# make env    only the workflow's environment, .venv
# make lint   what must be clean before a commit
# make lock   lock envs/*/requirements.in again (needs uv)

PYTHON ?= python3
BIN := .venv/bin
PATHS := scripts tests benchmarks patches/hooks

# snakefmt looks for shfmt on the PATH.
export PATH := $(CURDIR)/$(BIN):$(PATH)

.PHONY: demo test test-quick test-unit test-plan test-faults test-end-to-end test-slurm test-containers nightly env environments lint lock slurm-up slurm-down slurm-demo
.DELETE_ON_ERROR:
SHELL := bash
.SHELLFLAGS := -o pipefail -c

demo: env
	@$(BIN)/snakemake --profile local

# Two at a time, the longest first: Slurm and containers wait for much of their time, engines use
# the processors. With three at a time an engine took 114 s to boot, which alone takes 33.
test: env lint
	@$(MAKE) --no-print-directory --jobs=2 test-end-to-end test-slurm test-containers test-faults test-quick

# What serves and what replays; with these built, tests and `make demo` need no network.
environments: env
	@$(BIN)/snakemake --profile local --quiet rules -- \
	    .envs/client/environment.json .envs/serve-cpu/environment.json

# $(call told,NAME,FOLDERS): pytest, with a name before each line.
told = $(BIN)/pytest --verbose --no-header $(2) 2>&1 | sed --unbuffered 's/^/$(1) | /'

test-quick: test-unit test-plan

test-unit: env
	@$(call told,unit,tests/unit tests/registry)

test-plan: env
	@$(call told,plan,tests/plan tests/report)

test-faults: environments
	@$(call told,fault,tests/faults/test_faults.py tests/patches tests/targets)

test-end-to-end: environments
	@$(call told,real,tests/end_to_end tests/faults/test_wrong_servers.py)

test-slurm: env
	@$(call told,slurm,tests/slurm tests/cluster)

test-containers: env
	@$(call told,contain,tests/containers)

nightly: env
	@$(BIN)/pytest -m "nightly or not nightly"

# Two simulated nodes on this machine (root, Debian's slurm-wlm and munge): docs/slurm.md.
SLURM_STATE ?= /tmp/serve-repro-slurm
CLUSTER := $(BIN)/python tests/cluster/slurm_cluster.py

slurm-up: env
	@$(CLUSTER) up --state $(SLURM_STATE) --nodes 2 --gpus 8

slurm-down: env
	@$(CLUSTER) down --state $(SLURM_STATE)

slurm-demo: slurm-up
	@eval "$$($(CLUSTER) env --state $(SLURM_STATE))" && \
	    $(BIN)/snakemake --profile slurm --configfile config/tiny-slurm.yaml; \
	    status=$$?; $(CLUSTER) down --state $(SLURM_STATE); exit $$status

env: .venv/lock.txt

# The lock that was installed lies in the environment: it is made again when the lock changes.
.venv/lock.txt: envs/workflow/lock.txt
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit(f"Python 3.11 or newer is needed; $(PYTHON) is {sys.version.split()[0]}. Name another one: make PYTHON=...")'
	@echo "making the workflow's environment in .venv"
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip --disable-pip-version-check install --no-deps --requirement $<
	@cp $< $@

lint: env
	@$(BIN)/snakefmt --check Snakefile rules
	@$(BIN)/ruff check $(PATHS)
	@$(BIN)/ruff format --check $(PATHS)
	@$(BIN)/mypy
	@$(BIN)/snakemake --lint

lock:
	@for name in workflow client eval; do \
	    uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	        --no-annotate --no-header envs/$$name/requirements.in --output-file envs/$$name/lock.txt || exit; \
	done
	@for name in serve-cpu serve-cpu-0.27.1; do \
	    uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-deps \
	        --no-annotate --no-header envs/$$name/requirements.in --output-file envs/$$name/lock.txt || exit; \
	done
