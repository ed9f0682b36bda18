# Every command sets everything up by itself on a fresh clone. PYTHON may name another interpreter (3.11 or newer).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test lint mutants mutation redteam clean

# A clinic's notes, a model with privacy and one without, and what each of them gives away: all of it is in demo/.
demo: $(VENV)/installed
	rm -rf demo
	$(BIN)/dpnlp demo

test: lint
	$(BIN)/pytest -n auto --dist loadfile

lint: $(VENV)/peers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# Plants known defects one by one in a copy and says which tests notice; ONLY=word picks some, JOBS=n tries as many at once.
mutants: $(VENV)/peers
	ONLY="$(ONLY)" JOBS="$(or $(JOBS),1)" $(BIN)/python tests/planting.py

# Changes the code in 600 random places, one at a time, and says which changes no test notices. It takes hours, can be
# stopped, and goes on where it was; ONLY=word picks files, JOBS=n tries as many at once.
mutation: $(VENV)/peers
	ONLY="$(ONLY)" JOBS="$(or $(JOBS),1)" nice $(BIN)/python tests/mutation.py

# Tries to break the stated promises from outside, a hundred times as hard as `make test` does.
redteam: $(VENV)/peers
	REDTEAM=thorough $(BIN)/pytest tests/redteam

$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable .
	touch $@

# The tests compare with other implementations, PyTorch's among them, which takes a while to download.
$(VENV)/peers: $(VENV)/installed
	$(BIN)/pip install --quiet --use-pep517 --constraint constraints.txt --editable '.[test,peers]'
	touch $@

clean:
	rm -rf $(VENV) demo build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
