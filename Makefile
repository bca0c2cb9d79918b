# Every target sets up .venv by itself, from nothing but Python 3.11 or newer. See README.md.
#
#   make plan      plan the first example and write its Terraform workspace to scav-plan/
#   make quick     the fast tests only
#   make test      lint, then every test, fast ones first
#   make lint      ruff and mypy
#   make coverage  which lines and branches the fast tests reach
#   make mutants   how many of 200 small changes of the core the fast tests notice; SEED=2 draws others (half an hour)
#   make bench     the benchmarks; DATA=dir adds those that need public measurements
#   make dist      wheel and sdist, and scav.txt, by which pip installs that wheel and nothing else
#   make provider  the provider as one archive with Python inside, in build/provider, tested without any Python on PATH
#   make lock      write requirements/*.lock anew after a change of pyproject.toml; UPGRADE=1 takes newer versions, too
#   make clean     remove .venv, caches and builds (never scav-plan/: it may hold Terraform state)

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# pip warns about mirrors that lack a package; only what stops it is of interest here.
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq
BASE := $(VENV)/.installed-base
DEV := $(VENV)/.installed-dev
# Not in the lock: the build for CPUs, which is enough here, has another hash than the one on PyPI, which brings gigabytes
# of CUDA along. So the version is exact, and pip takes the build that this machine offers. What both builds need is locked.
TORCH := torch==2.13.0
TORCH_NEEDS := filelock fsspec jinja2 networkx setuptools sympy typing-extensions

.DEFAULT_GOAL := plan
.PHONY: plan quick test lint coverage mutants bench dist provider lock clean

plan: $(or $(wildcard $(DEV)),$(BASE)) # the dev extra contains the base
	@$(BIN)/scav plan examples/resnet50-imagenet --out scav-plan

FAST_TESTS := $(BIN)/python -m pytest -m "not slow" -n 2 --dist loadfile

quick: $(DEV)
	@$(FAST_TESTS)

# Two files at a time, three of the slow ones, which often wait. No test times anything, so they may run beside others.
test: lint
	@failed=0; \
	$(FAST_TESTS) || failed=1; \
	$(BIN)/python -m pytest -m slow -n 3 --dist loadfile || failed=1; \
	exit $$failed

lint: $(DEV)
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy --strict planner $(if $(wildcard probes/*.py),probes)

coverage: $(DEV)
	@$(FAST_TESTS) --cov

# In copies of the tree under the temporary folder, two at a time or WORKERS; what was recorded of each test is kept there,
# and each verdict: a run that was stopped goes on where it was.
mutants: $(DEV)
	@nice $(BIN)/python tests/mutants/run.py $(if $(COUNT),--count $(COUNT)) $(if $(SEED),--seed $(SEED)) \
	  $(if $(WORKERS),--workers $(WORKERS))

bench: $(DEV)
	@$(BIN)/python benchmarks/planner_speed.py
	@$(BIN)/python benchmarks/convergence.py
	@$(BIN)/python benchmarks/end_to_end.py --quick
	@$(BIN)/python benchmarks/shaped_network.py
	@$(BIN)/python benchmarks/provider_times.py
ifdef DATA
	@$(BIN)/python benchmarks/accuracy_page.py --data "$(DATA)" docs/accuracy.md
	@$(BIN)/python benchmarks/spot_price_drift.py --data "$(DATA)"
else
	@echo "Skipped what needs public measurements (make bench DATA=dir), which also writes docs/accuracy.md"
endif

# In the environment that the lock describes, so that nothing is fetched for a build.
dist: $(DEV)
	@rm -rf dist
	@$(BIN)/python -m build --no-isolation --outdir dist >&2
	@version=$$($(BIN)/python -c 'import planner; print(planner.__version__)') && \
	hash=$$($(BIN)/python -m pip hash dist/*.whl | grep '^--hash=sha256:') && \
	{ echo '# scav and all that it needs, by hash; pip finds the wheel beside this file.' && \
	echo '--find-links .' && \
	echo "scav-planner[terraform]==$$version $$hash" && \
	cat requirements/pipeline.lock; } > dist/scav.txt
	@ls dist/*

# Not among the tests: it takes minutes, and half a gigabyte. Not in the lock either, since nothing else needs it.
provider: $(DEV)
	@$(PIP) install 'pyinstaller>=6.10'
	@$(BIN)/python -m pytest tests/terraform/self_contained.py

# One file for every Python and platform that scav supports. Neither names an index: pip asks the one it is told to ask.
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes $(if $(UPGRADE),--upgrade) \
  --no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock' \
  --override requirements/without-torch.txt pyproject.toml
lock: $(DEV)
	@printf '%s\n' $(TORCH_NEEDS) | $(COMPILE) - --extra dev --output-file requirements/dev.lock
	@$(COMPILE) --extra terraform --constraints requirements/dev.lock --output-file requirements/pipeline.lock

clean:
	@rm -rf $(VENV) build dist .coverage .coverage.* .pytest_cache .mypy_cache .ruff_cache .hypothesis
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

# By hash, also what builds scav itself; torch last, and with what its build needs beyond the lock. Without dependencies,
# since the lock names all of them but torch, which some of its packages ask for.
$(DEV): pyproject.toml requirements/dev.lock
	$(set_up)
	@$(PIP) install --no-deps --require-hashes -r requirements/dev.lock
	@$(PIP) install $(TORCH)
	@$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@
