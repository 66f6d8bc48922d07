# Two commands for a fresh machine with git, make and python3 (3.11 or later): `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
SEED := $(shell date +%s)
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
KEY := $(shell cat pyproject.toml requirements.lock | cksum | cut -d' ' -f1)
READY := $(VENV)/ready-$(KEY)
LOCKED := --require-hashes --only-binary :all: -r requirements.lock
# uv in the version of the lock; where pip has an index of its own, uv asks that one
GET_UV = sed -n '/^uv==/,/[^\\]$$/p' requirements.lock > $(VENV)/uv.txt && $(PIP) --require-hashes --only-binary :all: -r $(VENV)/uv.txt
INDEX = UV_DEFAULT_INDEX=$${UV_DEFAULT_INDEX:-$${PIP_INDEX_URL:-$$($(BIN)/python -m pip config get global.index-url 2>/dev/null)}}
# two processes of one thread each; tests/conftest.py says which files come first
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

.PHONY: demo test test-random lint types check docs dist bench browser smoke stress licenses advisories lock clean

demo: $(READY)  ## an audit of scikit-learn's digits with a tenth of the labels made wrong: a table and a report
	$(BIN)/mohs audit --out runs/digits
	@echo "next:   $(BIN)/mohs review runs/digits   (decide on the flagged labels in your browser)"

test: $(READY)  ## all tests
	$(PYTEST)

test-random: $(READY)  ## all tests, files and tests in them in random order; again the same order: make test-random SEED=17
	$(PYTEST) --random-order --random-order-seed=$(SEED)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

check: lint types test

docs: $(READY)  ## the documentation as a site in docs/_build/html; warnings are errors
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

dist: $(READY)  ## wheel, sdist and their bill of materials (CycloneDX) in dist/
	rm -rf dist && $(BIN)/python -m build --no-isolation && $(BIN)/python -m twine check --strict dist/*
	$(BIN)/python supply/sbom.py dist/*

smoke: $(READY)  ## every study of the papers, each in about a second
	OMP_NUM_THREADS=1 $(BIN)/mohs study recipes/a* recipes/robust --scale smoke --quiet --runs runs/smoke-1 & half=$$!; \
	OMP_NUM_THREADS=1 $(BIN)/mohs study recipes/el recipes/gr --scale smoke --quiet --runs runs/smoke-2 && wait $$half

browser:  ## Debian's Chromium, for the tests of the report and the review; without it they are skipped
	@command -v chromium >/dev/null || { \
	  [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq && \
	  apt-get install -y -qq --no-install-recommends chromium fonts-liberation fonts-noto-core >/dev/null; } || \
	  echo "no chromium here: the browser tests will be skipped"

bench: $(READY)  ## time and memory of the losses against F.cross_entropy
	$(BIN)/python benchmarks/losses.py
	$(BIN)/python benchmarks/regularizers.py

stress: $(READY)  ## kills, damaged files, random specs and loss calls, for minutes; options: make stress STRESS="--kills 50"
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/stress.py --out results/stress.md $(STRESS)

licenses: $(READY)  ## fails if an installed package has a license that is not allowed
	$(BIN)/python supply/licenses.py

advisories: $(READY)  ## fails if a locked version has a known vulnerability; says so if the advisories are out of reach
	$(BIN)/python supply/advisories.py

lock:  ## requirements.lock again, after a change of pyproject.toml; to upgrade: make lock UPGRADE="--upgrade-package torch"
	@test -x $(BIN)/uv || { $(PYTHON) -m venv $(VENV) && $(GET_UV); }
	$(INDEX) $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --all-extras --generate-hashes --no-annotate \
	  --custom-compile-command "make lock" $(UPGRADE) --output-file requirements.lock pyproject.toml

clean:
	rm -rf $(VENV) runs build dist

# The environment: created again whenever the requirements change. The lock has the hash of every file that may be
# installed. uv unpacks on all cores; pip does where uv cannot run. Bytecode: not of others' tests, nor of a thousand unused models.
$(READY): pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "mohs needs Python 3.11 or later: make PYTHON=python3.12"; exit 4; }
	@$(PYTHON) -m venv --clear $(VENV) || { echo "$(PYTHON) cannot make a virtual environment: install its venv package (Debian: python3-venv)"; exit 4; }
	@echo "Installing into $(VENV): a few minutes and about 6 GB, most of it torch ..."
	{ $(GET_UV) && $(INDEX) $(BIN)/uv pip install --quiet --python $(BIN)/python $(LOCKED); } || $(PIP) --no-compile $(LOCKED)
	@$(BIN)/python -m compileall -q -j 0 -x '/(tests|transformers/models)/' $(VENV)/lib >/dev/null 2>&1 || true  # some need a newer Python
	$(PIP) --no-deps --no-build-isolation -e .
	@touch $@
