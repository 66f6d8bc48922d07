# Two commands for a fresh machine with git, make and python3 (3.11 or later): `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
KEY := $(shell cat pyproject.toml constraints.txt | cksum | cut -d' ' -f1)
READY := $(VENV)/ready-$(KEY)

.PHONY: demo test lint types check bench clean

demo: $(READY)  ## what each loss pays attention to, and how hard each of scikit-learn's digits is
	@mkdir -p runs
	$(BIN)/mohs emphasis --relative --out runs/emphasis.svg
	$(BIN)/mohs score --out runs/digits.parquet
	@echo "The picture is runs/emphasis.svg, the table of hardness runs/digits.parquet"

test: $(READY)  ## all tests
	$(BIN)/python -m pytest

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

check: lint types test

bench: $(READY)  ## time and memory of the losses against F.cross_entropy
	$(BIN)/python benchmarks/losses.py
	$(BIN)/python benchmarks/regularisers.py

clean:
	rm -rf $(VENV) runs build dist

# The environment: made anew whenever the requirements change.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "mohs needs Python 3.11 or later: make PYTHON=python3.12"; exit 4; }
	@$(PYTHON) -m venv --clear $(VENV) || { echo "$(PYTHON) cannot make a virtual environment: install its venv package (Debian: python3-venv)"; exit 4; }
	@echo "Installing into $(VENV): a few minutes and about 6 GB, most of it torch ..."
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[vision,report,hf,lightning,dev]'
	@touch $@
