# Every target sets up .venv by itself, from nothing but Python 3.11 or newer. See README.md.
#
#   make plan    plan the first example and write its Terraform workspace to scav-plan/
#   make test    lint, then every test, fast ones first
#   make lint    ruff and mypy
#   make bench   the benchmarks; DATA=dir adds those that need public measurements
#   make clean   remove .venv, caches and builds (never scav-plan/: it may hold Terraform state)

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# pip warns about mirrors that lack a package; only what stops it is of interest here.
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq
BASE := $(VENV)/.installed-base
DEV := $(VENV)/.installed-dev

.DEFAULT_GOAL := plan
.PHONY: plan test lint bench clean

plan: $(or $(wildcard $(DEV)),$(BASE)) # the dev extra contains the base
	@$(BIN)/scav plan examples/resnet50-imagenet --out scav-plan

# Two files at a time, three of the slow ones, which often wait; but tests that time things need the machine to themselves.
test: lint
	@failed=0; \
	$(BIN)/python -m pytest -m "not slow" -n 2 --dist loadfile || failed=1; \
	$(BIN)/python -m pytest -m "slow and not alone" -n 3 --dist loadfile || failed=1; \
	$(BIN)/python -m pytest -m "slow and alone" || failed=1; \
	exit $$failed

lint: $(DEV)
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy --strict planner $(if $(wildcard probes/*.py),probes)

bench: $(DEV)
	@$(BIN)/python benchmarks/planner_speed.py
	@$(BIN)/python benchmarks/convergence.py
	@$(BIN)/python benchmarks/end_to_end.py --quick
ifdef DATA
	@$(BIN)/python benchmarks/accuracy_page.py --data "$(DATA)" docs/accuracy.md
	@$(BIN)/python benchmarks/spot_price_drift.py --data "$(DATA)"
else
	@echo "Skipped what needs public measurements (make bench DATA=dir), which also writes docs/accuracy.md"
endif

clean:
	@rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find planner probes tests benchmarks -type d -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

# On stderr, so that stdout is what scav prints. A .venv without pip is what an interrupted set-up leaves behind.
define set_up
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	{ echo "scav needs Python 3.11 or newer, which $(PYTHON) is not; name one: make PYTHON=python3.12" >&2; exit 1; }
	@echo "Setting up $(VENV) (once)" >&2
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
endef

$(BASE): pyproject.toml
	$(set_up)
	@$(PIP) install -e .
	@touch $@

$(DEV): pyproject.toml
	$(set_up)
	@$(PIP) install -e '.[dev]'
	@touch $@
