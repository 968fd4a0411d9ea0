# Two commands for a new user: `make run` and `make test`. Both set up .venv first, and again when requirements.txt changes.

PYTHON ?= python3
CONFIG ?= default_config_cartpole_syn_env.yaml
ARGS ?=
# for `make test-38`: the Python of workers with Isaac Gym
PYTHON38 ?= python3.8
# Where the small CPU build of torch is; asked only on a machine without an NVIDIA driver. TORCH_INDEX= switches it off.
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu

# can pip build netifaces, which hpbandster asks for?
COMPILES := 'import os, shutil, sys, sysconfig as s; sys.exit(not (os.path.exists(s.get_path("include") + "/Python.h") and any(map(shutil.which, ("cc", "gcc")))))'

# Images of containers set this to 1. Then each of hundreds of processes would compile torch's modules anew, for 1.5 s of CPU time.
export PYTHONDONTWRITEBYTECODE :=

VENV := .venv
BIN := $(VENV)/bin
# a copy of the requirements that were installed last; comparing contents, not times, survives a git checkout
STAMP := $(VENV)/installed-requirements.txt
# Python compiles what it imports; compiling every file of every package beforehand took half of the whole setup
INSTALL := -m pip install -q --no-compile
PIP_INSTALL := $(BIN)/python $(INSTALL)
# Two words of a recipe, a Python and a file of requirements: installs the small build of that file's torch
SMALL_TORCH = if [ -n "$(TORCH_INDEX)" ] && ! command -v nvidia-smi >/dev/null; then \
	    $(1) $(INSTALL) --no-deps --retries 1 --timeout 30 --extra-index-url "$(TORCH_INDEX)" "$$(grep '^torch==' $(2))"; \
	  fi

# Words of a recipe that makes a virtual environment of its own: its folder, its requirements, the variable that names
# its Python, the versions of Python that fit, and how long it takes
define OTHER_VENV
@cmp -s $(2) $(1)/installed-requirements.txt || { \
  set -e; \
  command -v $($(3)) >/dev/null || { echo "make: $($(3)) is not installed; Python $(4) is needed: make $(MAKECMDGOALS) $(3)=/path/to/python" >&2; exit 1; }; \
  $($(3)) -c 'import sys; sys.exit("%d.%d" % sys.version_info[:2] not in "$(4)".split())' || { echo "make: $($(3)) is $$($($(3)) -V 2>&1); Python $(4) is needed: make $(MAKECMDGOALS) $(3)=/path/to/python" >&2; exit 1; }; \
  echo "Installing $(2) into $(1) (once; $(5))"; \
  $(1)/bin/python -m pip --version >/dev/null 2>&1 || $($(3)) -m venv --clear $(1); \
  $(call SMALL_TORCH,$(1)/bin/python,$(2)); \
  $(1)/bin/python $(INSTALL) -r $(2); \
  cp $(2) $(1)/installed-requirements.txt; \
}
endef

# for `make setup-mjlab` and `make setup-isaaclab`
PYTHON_MJLAB ?= python3
PYTHON_ISAACLAB ?= python3.12

.DEFAULT_GOAL := help
.PHONY: help setup run test test-long test-38 setup-mjlab test-mjlab setup-isaaclab test-isaaclab lint docs film bench slurm-test clean

help: ## this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | awk -F '\t' '{printf "  make %-15s %s\n", $$1, $$2}'
	@echo 'Options: make run ARGS="--seed 3"    make run CONFIG=default_config_gridworld.yaml    make run PYTHON=python3.12'

setup: ## create .venv and install requirements.txt (the other targets do it for you)
	@cmp -s requirements.txt $(STAMP) || { \
	  set -e; \
	  command -v $(PYTHON) >/dev/null || { echo "make: $(PYTHON) is not installed; Python 3.10 to 3.13 is needed (make $(MAKECMDGOALS) PYTHON=/path/to/python3)" >&2; exit 1; }; \
	  $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "make: $$($(PYTHON) -V 2>&1) is too old; Python 3.10 to 3.13 is needed: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }; \
	  $(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "make: $(PYTHON) has no venv; on Debian or Ubuntu: sudo apt install python3-venv" >&2; exit 1; }; \
	  $(BIN)/python -m pip --version >/dev/null 2>&1 || { echo "Creating $(VENV) with $$($(PYTHON) -V)"; $(PYTHON) -m venv --clear $(VENV); }; \
	  echo "Installing requirements.txt into $(VENV) (once; a few minutes)"; \
	  $(call SMALL_TORCH,$(BIN)/python,requirements.txt); \
	  cp requirements.txt $(VENV)/requirements.txt; \
	  if ! $(BIN)/python -c $(COMPILES); then \
	    echo "No C compiler or no Python headers (gcc, python3-dev): hpbandster is left out, and BOHB with it" >&2; \
	    sed -i '/^hpbandster/d' $(VENV)/requirements.txt; \
	  fi; \
	  $(PIP_INSTALL) -r $(VENV)/requirements.txt; \
	  $(PIP_INSTALL) --no-deps -e .; \
	  cp requirements.txt $(STAMP); \
	}

run: setup ## the main job: evolve a world for CartPole and show that agents trained only in it solve CartPole
	$(BIN)/python GTN_master.py $(CONFIG) --single $(ARGS)

# a file's tests stay in one process: they share what they set up; files in the order of tests/conftest.py
test: setup ## the fast tests, in a process for every core (ARGS="-n 0": in one)
	$(BIN)/python -m pytest -m "not slow" -n auto --maxprocesses 8 --dist loadfile --no-loadscope-reorder --durations=20 $(ARGS)

test-long: setup ## the slow tests, for hours, a file at a time; goes on after Ctrl-C (ARGS="tests/agents": a folder; ARGS=--list)
	$(BIN)/python -m tests.long $(ARGS)

test-38: setup ## workers in Python 3.8 train every learner (PYTHON38=/path/to/python3.8), in .venv38
	$(call OTHER_VENV,.venv38,requirements-worker-py38.txt,PYTHON38,3.8,a few minutes)
	ENVOLVE_PYTHON38=$(CURDIR)/.venv38/bin/python $(BIN)/python -m pytest tests/test_python38.py $(ARGS)

setup-mjlab: ## create .venv-mjlab for tasks of mjlab (PYTHON_MJLAB=/path/to/python3.11)
	$(call OTHER_VENV,.venv-mjlab,requirements-mjlab.txt,PYTHON_MJLAB,3.11 3.12 3.13,some minutes and 2.5 GB)

test-mjlab: setup-mjlab ## tasks of mjlab, with mjlab itself (ARGS="-m slow": 520 steps beside its own managers)
	.venv-mjlab/bin/python -m pytest -m "not slow" tests/envs/managers $(ARGS)

setup-isaaclab: ## create .venv-isaaclab for tasks of Isaac Lab 3 (PYTHON_ISAACLAB=/path/to/python3.12)
	$(call OTHER_VENV,.venv-isaaclab,requirements-isaaclab.txt,PYTHON_ISAACLAB,3.12,some minutes and 8 GB)

test-isaaclab: setup-isaaclab ## tasks of Isaac Lab, with Isaac Lab itself, on a CPU
	.venv-isaaclab/bin/python -m pytest tests/envs/managers -k isaaclab $(ARGS)

lint: setup ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/mypy

docs: setup ## the documentation as a site, in results/site; ends with an error for a broken link (installs mkdocs-material once)
	@$(BIN)/python -c "import material, mkdocstrings_handlers.python" 2>/dev/null || $(PIP_INSTALL) "mkdocs-material>=9.6" "mkdocstrings[python]>=0.27"
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build

# the newest run's folder: a run never overwrites another
film: setup ## evolve the world of `make run` again: docs/world.gif and docs/learning_curve.png; draw the figures of docs/results/
	$(BIN)/python -m envolve run default_config_cartpole_syn_env.yaml --single --results-dir results/film
	$(BIN)/python -m envolve film "$$(ls -dt results/film/*/ | head -1)" --steps 120 --out docs/world.gif
	cp "$$(ls -dt results/film/*/ | head -1)/learning_curve.png" docs/learning_curve.png
	$(BIN)/python benchmarks/worlds/continuous_figure.py --out docs/continuous_control.png
	$(BIN)/python benchmarks/worlds/budget_figure.py --out docs/budgets.png

bench: setup ## speed and memory beside the peers, in one table (installs them into .venv-peers; ARGS=--no-peers: without)
	$(BIN)/python benchmarks/run.py $(ARGS)

slurm-test: setup ## masters and workers under a real SLURM on this machine, killed while they run (root may install it)
	$(BIN)/python slurm/test/run.py $(ARGS)

clean: ## remove .venv, .venv38, .venv-mjlab, .venv-isaaclab, .venv-peers and caches (results/ stays)
	rm -rf $(VENV) $(VENV38) $(VENV_MJLAB) $(VENV_ISAACLAB) .venv-peers .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -not -path './results/*' -exec rm -rf {} +
