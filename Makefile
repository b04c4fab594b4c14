# One command each. Everything is installed into .venv, which is made when it is missing.

PYTHON ?= python3
BIN := .venv/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1

# The oldest google-adk that the extra [adk] takes, tested in an environment of its own.
ADK_OLDEST := $(shell sed -n 's/.*"google-adk>=\([0-9.]*\),.*/\1/p' pyproject.toml)
ADK_BIN := .venv-adk-oldest/bin

.PHONY: help demo test quick explore test-adk-oldest check format bench clean
.DEFAULT_GOAL := help

help:
	@echo "make demo     set up, then watch runs being stopped and killed, and sessions go on; no key needed"
	@echo "make test     set up, then run all tests (options: make test ARGS='-k name -x')"
	@echo "make quick    the tests without the slow ones"
	@echo "make explore  all tests, with ever new and many more examples for those that make their own"
	@echo "make test-adk-oldest   tests/adk with the oldest google-adk that is supported"
	@echo "make check    format, lint, types, imports; changes nothing"
	@echo "make format   format and fix what can be fixed"
	@echo "make bench    measure; every figure beside one to compare it with"
	@echo "make clean    remove .venv and caches"

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or later is needed: make PYTHON=python3.11 ..."; exit 1; }
	$(PYTHON) -m venv .venv

# A stamp says that its extra was installed from the pyproject.toml of now.
.venv/%.stamp: pyproject.toml | $(BIN)/python
	$(BIN)/pip install --quiet --editable '.[$*]'
	@touch $@

demo: .venv/demo.stamp
	$(BIN)/heaveto demo

# Spread over the cores there are; WORKERS=0 runs them in one process, for a debugger.
WORKERS ?= auto
PYTEST := $(BIN)/pytest --numprocesses=$(WORKERS) --dist=worksteal

test: .venv/dev.stamp
	$(PYTEST) $(ARGS)

quick: .venv/dev.stamp
	$(PYTEST) -m "not slow" $(ARGS)

explore: .venv/dev.stamp
	HYPOTHESIS_PROFILE=long $(PYTEST) $(ARGS)

.venv-adk-oldest/$(ADK_OLDEST).stamp: pyproject.toml | $(BIN)/python
	$(BIN)/python -m venv --clear .venv-adk-oldest
	$(ADK_BIN)/pip install --quiet --editable '.[anthropic]' google-adk==$(ADK_OLDEST) \
		hypothesis pytest pytest-asyncio pytest-randomly pytest-timeout
	@touch $@

# Old packages warn of newer Pythons and of each other: warnings are no errors here.
test-adk-oldest: .venv-adk-oldest/$(ADK_OLDEST).stamp
	$(ADK_BIN)/pytest -W default tests/adk $(ARGS)

check: .venv/dev.stamp
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports

format: .venv/dev.stamp
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: .venv/demo.stamp
	for program in import_time turn_cost call_cost sessions_at_once cancel_latency stop_tools waiting_memory \
		pause_answer recover_many request_cost repair_cost repair_side_by_side; do \
		$(BIN)/python benchmarks/$$program.py || exit 1; \
	done

clean:
	rm -rf .venv .venv-adk-oldest .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache benchmarks/.peers-venv
