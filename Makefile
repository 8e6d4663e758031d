# Every command anyone runs, with a sentence each. `make` alone lists them.
.DEFAULT_GOAL := help
.PHONY: help up test check lint format robustness conformance bench measure generate lock clean

PYTHON ?= python3
BIN := .venv/bin
ARGS ?=
STORE ?=

# What was compiled once is kept, whatever the shell says: else each start compiles it all again.
export PYTHONDONTWRITEBYTECODE :=

# `make bench store` runs one benchmark: the words after `bench` are its names, not targets.
ifeq (bench,$(firstword $(MAKECMDGOALS)))
  BENCHES := $(wordlist 2,$(words $(MAKECMDGOALS)),$(MAKECMDGOALS))
  $(eval $(BENCHES):;@:)
endif

help: ## List these commands
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' Makefile

.venv/runtime: requirements.lock pyproject.toml tools/make_env.sh
	@sh tools/make_env.sh "$(PYTHON)" requirements.lock
	@touch $@

.venv/development: requirements-dev.lock pyproject.toml tools/make_env.sh
	@sh tools/make_env.sh "$(PYTHON)" requirements-dev.lock
	@touch $@ .venv/runtime

up: .venv/runtime ## Set up what is missing and start a fleet (data in .clusterspace, Ctrl-C stops it)
	@$(BIN)/clusterspace up --demo --data-dir .clusterspace $(ARGS)

test: export CLUSTERSPACE_TEST_STORE := $(STORE)
test: .venv/development ## Run everything that must pass (ARGS="-k name" to choose, STORE=etcd for hubs on etcd)
	@$(BIN)/python -m pytest -n 6 --dist loadfile --no-loadscope-reorder --max-worker-restart 3 -m "not slow and not bench" $(ARGS)

check: lint ## The loop while writing: format, lint, types, layers, unit and meta tests
	@$(BIN)/python -m pytest -q tests/unit tests/meta $(ARGS)

lint: .venv/development ## Formatting, ruff, types and layer contracts
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/basedpyright
	@$(BIN)/lint-imports
	@if command -v tsc >/dev/null; then tsc -p jsconfig.json; else echo "There is no tsc in PATH: types of the page's scripts are not checked."; fi

format: .venv/development ## Rewrite the sources in the one format, with safe fixes
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

robustness: .venv/development ## The slow suites: hundreds of crashes, new random examples
	@$(BIN)/python -m pytest -m slow $(ARGS)
	@$(BIN)/python -m pytest -m hypothesis --hypothesis-profile=explore $(ARGS)

conformance: .venv/development ## Other projects' suites where their binaries are found; writes docs/conformance.md, docs/karmada-compatibility.md
	@$(BIN)/python -m tools.conformance $(ARGS)

bench: .venv/development ## Measure; ratios in one run (`make bench store` for one)
	@$(BIN)/python -m tests.bench $(BENCHES)

measure: .venv/development ## The shape of the source in figures, beside code we learn from
	@$(BIN)/python -m tools.measure

generate: .venv/development ## Rebuild the generated files: schema facts, reference pages
	@$(BIN)/python tools/schema_facts.py
	@$(BIN)/python -m tools.reference

lock: .venv/development ## Choose versions anew and write both lock files
	@sh tools/lock.sh

clean: ## Remove the environment and caches (data in .clusterspace stays)
	@rm -rf .venv .pytest_cache .ruff_cache .hypothesis .import_linter_cache
