# Each target installs what it needs on a bare Debian machine; a second run installs nothing.

PYTHON ?= python3
SUDO := $(shell test "$$(id -u)" = 0 || echo sudo)
VENV := .venv
READY := $(VENV)/.ready

# Without bytecode every start of the program would compile it anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help quickstart test lint fuzz bench lock clean

help: ## Show the targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 20

quickstart: $(READY) ## Build, push, mount and run a real environment, and say what it took
	$(SUDO) $(VENV)/bin/python scripts/quickstart.py

test: $(READY) ## Run all checks and tests
	scripts/check lint unit fuzz integration

lint: $(READY) ## Run the static checks
	scripts/check lint

fuzz: $(READY) ## Give parsers and archive readers 100,000 strange inputs
	HYPOTHESIS_PROFILE=nightly scripts/check fuzz

bench: $(READY) ## Run all benchmarks against their goals
	$(SUDO) $(VENV)/bin/python -m bench all

lock: ## Write requirements.lock anew from pyproject.toml
	scripts/lock "$(PYTHON)"

clean: ## Remove everything that was installed or generated here
	rm -rf dsec_runtime/guest/dsec-agent $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	$(SUDO) rm -rf .quickstart

$(READY): packages.txt scripts/guest-kernel requirements.lock pyproject.toml $(wildcard dsec_runtime/guest/*.[ch])
	scripts/install-packages
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install -qq --disable-pip-version-check -r requirements.lock
	$(VENV)/bin/python -m pip install -qq --disable-pip-version-check \
		--no-deps --no-build-isolation --editable .
	scripts/guest-kernel
	touch $@
