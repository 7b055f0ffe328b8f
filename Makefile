# Everything a checkout needs: `make setup` fetches, `make test` believes nothing.
.DEFAULT_GOAL := help
SHELL := /bin/sh
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
VENV_STAMP := $(VENV)/.stamp
BENCH_STAMP := $(VENV)/.bench-stamp
JARS_STAMP := deploy/jars/.stamp
CODE := geo streaming jobs tests

.PHONY: help check-tools setup demo bench bench-density test test-statistical lint clean

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-17s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

check-tools: ## say which programs are missing
	@missing=0; \
	if ! command -v $(PYTHON) >/dev/null 2>&1; then \
	  echo "Python 3.11 is missing: install it, or name it with 'make PYTHON=...'."; missing=1; \
	elif ! $(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))'; then \
	  echo "$(PYTHON) is not Python 3.11, which PyFlink needs here: name one with 'make PYTHON=...'."; missing=1; \
	elif ! $(PYTHON) -c 'import ensurepip, venv' 2>/dev/null; then \
	  echo "$(PYTHON) has no venv module: install the package python3.11-venv."; missing=1; \
	fi; \
	if ! command -v java >/dev/null 2>&1; then \
	  echo "Java is missing: install a Java 17 runtime."; missing=1; \
	else \
	  version=$$(java -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1); \
	  if [ "$${version:-0}" -lt 17 ]; then echo "Java $${version:-of unknown version} is too old: install Java 17 or newer."; missing=1; fi; \
	fi; \
	if ! command -v mvn >/dev/null 2>&1; then \
	  echo "Maven is missing: install mvn, which fetches the Kafka jars."; missing=1; \
	fi; \
	exit $$missing

setup: check-tools $(VENV_STAMP) $(JARS_STAMP) ## fetch Python packages into .venv and jars into deploy/jars

$(VENV_STAMP): pyproject.toml | check-tools
	@echo "Installing Python packages into $(VENV): two to four minutes."
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

$(JARS_STAMP): deploy/pom.xml | check-tools
	@echo "Fetching jars into deploy/jars."
	rm -rf deploy/jars
	mvn -q -B -f deploy/pom.xml package
	@touch $@

demo: setup ## real tracks through everything, on a broker of its own: counts, displacement, pictures
	@$(BIN)/wayveil demo

$(BENCH_STAMP): $(VENV_STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]'
	@touch $@

bench: setup $(BENCH_STAMP) ## compare with a bare loop and with Flink alone, and look at memory (about 10 minutes)
	@$(BIN)/wayveil bench

lint: setup ## style, types and import rules
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/mypy
	$(BIN)/lint-imports

bench-density: setup $(BENCH_STAMP) ## compare the accuracy of density with other mechanisms, on the public samples (about 5 minutes)
	@$(BIN)/wayveil bench-density

test: lint ## lint, then all tests but the slow ones
	$(BIN)/pytest

test-statistical: setup ## the tests of distributions, with large samples
	WAYVEIL_TEST_DRAWS=1000000 $(BIN)/pytest -m statistical

clean: ## remove all that setup, tests and runs left behind
	@if [ -x $(BIN)/wayveil ]; then $(BIN)/wayveil broker stop; fi
	rm -rf $(VENV) deploy/jars deploy/target .wayveil build dist *.egg-info
	rm -rf .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +
