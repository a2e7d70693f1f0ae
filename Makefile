# Every task of the project. `make` lists them; there is no second way to do any of these.

PYTHON ?=
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
LOG := $(VENV)/install.log
PIP := $(BIN)/python -I -m pip --no-input --disable-pip-version-check --quiet
UV_VERSION := 0.13.9
TEST_FLAGS ?=
TEST_WORKERS ?= 3
BENCH ?=
UP_FLAGS ?=
LOCK_FLAGS ?=
SEED ?=
SEEDS ?= 20
SOAK_S ?= 31536000

# Settings of the user's that would send an install elsewhere or put other code on the path.
unexport PIP_USER PIP_TARGET PIP_PREFIX PIP_CONSTRAINT PIP_REQUIRE_HASHES PYTHONPATH PYTHONHOME

MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.PHONY: help setup demo up test check lint types layers tidy sim soak fmt bench docs lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' Makefile

setup: ## make .venv and install what requirements.lock names (once); PYTHON=python3.12 picks one
	@$(SETUP)

demo: setup ## start a cluster, run a gang and some small jobs on it, break a GPU, show what happened
	@exec $(BIN)/muster demo

up: setup ## keep a cluster running in the foreground; UP_FLAGS="--nodes 4 --gpus-per-node 8"
	@exec $(BIN)/muster up $(UP_FLAGS)

test: check ## everything that must be green: check, then all tests; TEST_FLAGS="-k gang", TEST_WORKERS=0 one after the other
	@exec $(BIN)/python -I -m pytest -q -n $(TEST_WORKERS) --dist loadfile $(TEST_FLAGS)

check: lint types layers tidy ## what needs no server: lint, format, types, layers, tidy limits

lint: setup ## lint and format, as ruff sees them
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet . || { echo "make: files above are not formatted: make fmt" >&2; exit 1; }
	@echo "lint: clean"

types: setup ## types, as mypy --strict sees them
	@$(BIN)/mypy

layers: setup ## what may import what, as .importlinter says
	@$(BIN)/lint-imports --no-logo .importlinter

tidy: setup ## the numbers of the style: lengths, names, documents
	@$(BIN)/python -I -m pytest -q tests/test_tidy.py

sim: setup ## worlds full of faults, from seeds: SEEDS=100 so many, SEED=7 this one, with its trace where a law breaks
	@exec $(BIN)/python -I -m tests.sim $(if $(SEED),--seed $(SEED),--seeds $(SEEDS))

soak: setup ## the same on all cores until interrupted, or for SOAK_S seconds, from seeds that no other run had
	@exec $(BIN)/python -I -m tests.sim --for $(SOAK_S) --fresh

fmt: setup ## put all files into the one format, and mend what lint can mend
	@$(BIN)/ruff check --quiet --fix-only .
	@$(BIN)/ruff format --quiet .

bench: setup ## measure; BENCH="decide burst" picks some
	@exec $(BIN)/python -I -m bench $(BENCH)

docs: setup ## write docs/events.md, docs/asyncapi.json and the schemas anew, from the types
	@$(BIN)/python -I -m events.docs

lock: setup ## write requirements.lock anew from pyproject.toml; LOCK_FLAGS=--upgrade takes the newest
	@rm -rf build/lock
	@$(BIN)/python -I -m venv build/lock
	@build/lock/bin/python -I -m pip --disable-pip-version-check --quiet install uv==$(UV_VERSION)
	@build/lock/bin/uv pip compile --quiet --universal --python-version 3.11 --extra dev --generate-hashes \
		--strip-extras --no-annotate --no-emit-index-url --no-emit-find-links \
		--custom-compile-command "make lock" $(LOCK_FLAGS) --output-file requirements.lock pyproject.toml
	@rm -rf build/lock

clean: ## remove .venv and all that tools left behind; the data of clusters (.muster) stays
	@rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Prints one line when it installed something, the log of the installer when that failed, nothing when there was nothing
# to do. The stamp says what was installed and where: an environment does not survive a move, so a moved one is made anew.
define SETUP
want="$$(pwd) $$(cat requirements.lock pyproject.toml | cksum)"; \
have="$$(cat $(STAMP) 2>/dev/null || true)"; \
fits='import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))'; \
which='import sys; print(sys.version)'; \
if [ -n "$(PYTHON)" ] && asked="$$("$(PYTHON)" -I -c "$$which" 2>/dev/null)" && \
    [ "$$asked" != "$$($(BIN)/python -I -c "$$which" 2>/dev/null)" ]; then rm -rf $(VENV); have=; fi; \
if [ "$$want" = "$$have" ] && $(BIN)/python -I -c '' 2>/dev/null; then exit 0; fi; \
if [ -n "$$have" ] && [ "$${have% * *}" != "$$(pwd)" ]; then rm -rf $(VENV); fi; \
if ! $(BIN)/python -I -c "$$fits" 2>/dev/null; then \
    found=; \
    for python in $(or $(PYTHON),python3.13 python3.12 python3.11 python3); do \
        if "$$python" -I -c "$$fits" 2>/dev/null; then found=$$python; break; fi; \
    done; \
    if [ -z "$$found" ]; then \
        echo "make: no usable Python among: $(or $(PYTHON),python3.13 python3.12 python3.11 python3)" >&2; \
        echo "make: wanted is 3.11 or newer with venv and ensurepip (Debian: package python3-venv)," >&2; \
        echo "make: or name another one: make setup PYTHON=/path/to/python" >&2; \
        exit 1; \
    fi; \
    rm -rf $(VENV); \
    "$$found" -I -m venv $(VENV) || exit 1; \
fi; \
rm -f $(STAMP); \
if [ -t 2 ]; then echo "setup: installing into $(VENV), once, in about a minute ..." >&2; fi; \
if ! { $(PIP) install --only-binary :all: --require-hashes --requirement requirements.lock && \
       $(PIP) install --no-deps --no-build-isolation --editable . ; } > $(LOG) 2>&1; then \
    cat $(LOG) >&2; \
    echo "make: the install failed, its log is above and in $(LOG)" >&2; \
    exit 1; \
fi; \
echo "$$want" > $(STAMP); \
echo "setup: $$($(BIN)/python -V) with $$(grep -c '==' requirements.lock) locked packages in $(VENV)"
endef
