# Two commands for a fresh machine with git, make and python3 (3.11 or later): `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
KEY := $(shell cat pyproject.toml constraints.txt | cksum | cut -d' ' -f1)
READY := $(VENV)/ready-$(KEY)

.PHONY: demo test lint types check docs dist bench browser smoke stress clean

demo: $(READY)  ## an audit of scikit-learn's digits with a tenth of the labels made wrong: a table and a report
	$(BIN)/mohs audit --out runs/digits
	@echo "next:   $(BIN)/mohs review runs/digits   (decide on the flagged labels in your browser)"

test: $(READY)  ## all tests, on two processes of one thread each
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

check: lint types test

docs: $(READY)  ## the documentation as a site in docs/_build/html; warnings are errors
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

dist: $(READY)  ## wheel and sdist in dist/
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt build twine
	rm -rf dist && $(BIN)/python -m build && $(BIN)/python -m twine check --strict dist/*

smoke: $(READY)  ## every study of the papers, each in about a second
	OMP_NUM_THREADS=1 $(BIN)/mohs study recipes --scale smoke --quiet

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

clean:
	rm -rf $(VENV) runs build dist

# The environment: made anew whenever the requirements change.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "mohs needs Python 3.11 or later: make PYTHON=python3.12"; exit 4; }
	@$(PYTHON) -m venv --clear $(VENV) || { echo "$(PYTHON) cannot make a virtual environment: install its venv package (Debian: python3-venv)"; exit 4; }
	@echo "Installing into $(VENV): a few minutes and about 6 GB, most of it torch ..."
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[images,text,vision,report,review,hf,lightning,explain,docs,bench,dev]'
	@touch $@
