# make repro: a gated adapter from a fresh clone.  make test: the tests.  Both set up .venv first.
SHELL := /bin/bash
PYTHON ?= python3.11
ROUNDS ?= 10
export PATH := $(CURDIR)/.venv/bin:$(PATH)
export DVC_NO_ANALYTICS := 1

.PHONY: setup repro test explore check prove runs lock

setup: .venv/installed

.venv/installed: requirements.lock
	$(PYTHON) -m venv .venv
	pip install --quiet --disable-pip-version-check -r requirements.lock
	pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch .venv/installed

repro: setup ## rebuild the adapter this commit describes, then judge it
	dvc repro
	hashtune check --gate

test: setup ## unit, property and pipeline tests, in two processes of one thread each
	pytest -n 2 --dist worksteal

explore: setup ## the property tests with new draws, until one fails or ROUNDS are done
	for round in $$(seq $(ROUNDS)); do HYPOTHESIS_PROFILE=explore pytest -n 2 --dist worksteal \
	  $$(grep -rl 'import.*given' tests) || exit; done

check: setup ## lint, format and types, as the commit hook runs them
	pre-commit run --all-files

prove: setup ## the slow proofs (bench/): the real base, the memory plan, mutated data files, verify, two clones, kills, the gate
	python bench/prove.py
	python bench/plan_vs_published.py
	python bench/plan_vs_real.py --jobs 2
	python bench/fuzz_data.py
	python bench/verify_faults.py
	python bench/two_clones.py
	python bench/kill_anywhere.py --kills 36 --runs 6
	python bench/gate_error_rates.py
	pytest -n 2 --dist worksteal -m proof tests/pipeline

runs: setup ## the readable columns of dvc exp show
	dvc exp show --only-changed --param-deps --drop \
	  '^(src|build|conf|data|reports|params)(/[^:]*|\.yaml)?$$|(^|:)run\.experiment$$|sha256$$'

lock: ## write requirements.lock from pyproject.toml
	pip-compile --quiet --extra dev --strip-extras --unsafe-package pip --no-header \
	  --no-emit-index-url --no-emit-find-links --no-emit-trusted-host \
	  --output-file requirements.lock pyproject.toml
	sed -i 's/^\(torch==[0-9.]*\)+[a-z0-9]*/\1/' requirements.lock
