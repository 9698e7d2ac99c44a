# Two commands carry the project: `make demo` and `make test`. Both do all set-up themselves.
#
#   PYTHON=python3.12   another interpreter (3.11 or newer)
#   PIP_FLAGS="--extra-index-url …"   another package index, for instance one with CPU-only torch

PYTHON ?= python3
VENV ?= .venv
PIP_FLAGS ?=
PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed

.PHONY: help demo test lint unit browser test-backends test-backends-quick example docs bench bench-quick figures faults clean lock

help:
	@echo "make demo    a Strands agent learns on this machine, in about five minutes"
	@echo "make test    lint, types and all tests (JOBS=4: in four processes; default two)"
	@echo "make example NAME=…   one of the agents under examples/, with its shipped tasks"
	@echo "make test-backends    the tests against real vLLM, verl, Tinker (makes their environments)"
	@echo "make bench   every figure, its peers beside it, into benchmarks/results (bench-quick: 5 minutes)"
	@echo "make faults  10 minutes of kills, cuts and full disks, and what must hold (MINUTES=2 SEED=7)"
	@echo "make docs    write docs/reference.md anew from the code"
	@echo "make lock    write constraints.txt anew from the newest releases"
	@echo "make clean   remove the virtual environment and caches"

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed; choose one with: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@echo "setting up $(VENV) (a minute or two, once) …"
	@test -x $(PY) || $(PYTHON) -m venv $(VENV)
	@$(PY) -m pip install --quiet --disable-pip-version-check $(PIP_FLAGS) -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(STAMP)
	@$(PY) examples/strands_math_agent/demo.py

test: lint unit

lint: $(STAMP)
	$(VENV)/bin/ruff check
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/mypy

JOBS ?= 2
RERUNS ?= 0
unit: $(STAMP) browser
	$(PY) -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder --reruns $(RERUNS)

browser:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || \
	  { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	    echo "installing chromium for the dashboard's tests …" && \
	    { timeout 240 apt-get install -yqq --no-install-recommends chromium || \
	      { timeout 90 apt-get update -qq && timeout 240 apt-get install -yqq --no-install-recommends chromium; }; } >/dev/null 2>&1; } || \
	  echo "no chromium, and no right to install it: the tests of the dashboard's page will skip"

example: $(STAMP)
	@$(PY) examples/run.py $(NAME)

BACKENDS ?= skyrl tinker vllm verl
BACKEND_TESTS ?= tests/backends
BACKEND_MARK ?= backends
test-backends: $(STAMP)
	@$(PY) tests/backends/environment.py --try $(BACKENDS)
	$(PY) -m pytest $(BACKEND_TESTS) -m "$(BACKEND_MARK)"

test-backends-quick:
	@$(MAKE) test-backends BACKEND_MARK="backends and quick"

MINUTES ?= 10
SEED ?=
faults: $(STAMP)
	@$(PY) -m faults --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

docs: $(STAMP)
	@$(PY) docs/make_reference.py

bench: $(STAMP)
	@$(PY) benchmarks/suite.py && $(PY) benchmarks/suite.py --check

bench-quick: $(STAMP)
	@$(PY) benchmarks/suite.py --quick && $(PY) benchmarks/suite.py --quick --check

figures: $(STAMP)
	@$(PY) benchmarks/suite.py --readme

lock:
	rm -rf .venv-lock && $(PYTHON) -m venv .venv-lock
	.venv-lock/bin/python -m pip install --quiet --disable-pip-version-check $(PIP_FLAGS) -e '.[dev]'
	.venv-lock/bin/python -m pip freeze --exclude-editable --exclude agentcore-rl-toolkit \
	  | sed 's/+cpu$$//' > constraints.txt
	rm -rf .venv-lock

clean:
	rm -rf $(VENV) .venv-lock .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
