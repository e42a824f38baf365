# The front door. Every target does all of its own set-up; `make demo` and `make test` need Python 3.11+, and Java 17 for Spark.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
SPHINX := $(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going
DEMO_INSTALLED := $(VENV)/.installed-for-demo
# How make fills .venv: with the extra that is named, in the versions of constraints.txt.
define install_extra
	$(PYTHON) -c 'import sys; sys.exit("Lograft needs Python 3.11 or newer; set PYTHON=...") if sys.version_info < (3, 11) else 0'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$(1)]'
endef

.PHONY: help install demo test check format simulate fuzz docs interop packaging chaos chaos-figures bench clean
.DEFAULT_GOAL := help

help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 15

install: $(INSTALLED)  ## create .venv with everything
$(INSTALLED): pyproject.toml constraints.txt
	$(call install_extra,dev)
	touch $@ $(DEMO_INSTALLED)

# The demo needs less; a complete .venv will do, and a later `make install` completes this one.
$(DEMO_INSTALLED): pyproject.toml constraints.txt
	@echo "Installing Lograft with PySpark into $(VENV) …"
	$(call install_extra,spark)
	touch $@

NODES ?= 1
demo: $(if $(filter 3,$(NODES)),install,$(DEMO_INSTALLED))  ## a shop streams into a node, Spark makes tables of it; NODES=3: a cluster whose leaders are killed
	$(BIN)/$(if $(filter 3,$(NODES)),python -m examples.cluster_demo,lograft demo)

# Property tests take the same examples every time here: a change is judged by what it changed. plain `pytest` rolls the dice.
test: check  ## everything that needs only PyPI (and Java 17 for Spark), about ten minutes
	$(BIN)/python -X dev -bb -m pytest -q --hypothesis-profile=ci -n 2 --dist loadfile --no-loadscope-reorder -m 'not interop and not chaos and not packaging'

check: install  ## format, lint, types, layers, links of the documentation
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/tidy
	$(SPHINX) -b dummy docs .cache/docs

format: install  ## let ruff lay out the code
	$(BIN)/ruff format --quiet .
	$(BIN)/ruff check --quiet --fix .

SEED ?=
KIND ?= all
SECONDS_MAX ?= 60
simulate: install  ## seeded faults, KIND=acls|groups|cluster|node|raft|storage; SEED=n replays one
	$(BIN)/python -m campaigns $(if $(SEED),replay $(SEED),run --seconds $(SECONDS_MAX)) --kind $(KIND)

fuzz: install  ## hostile frames against every API and version, longer than in make test
	LOGRAFT_FUZZ_SECONDS=$(SECONDS_MAX) $(BIN)/python -m pytest -q -m fuzz --timeout 0

docs: install  ## the documentation site, in docs/_build/index.html; every broken link is an error
	$(SPHINX) -b html docs docs/_build

interop: install  ## other languages' clients and Kafka's own tools; LOGRAFT_INTEROP=full: on Kafka too
	LOGRAFT_TEST_SERVERS=$(if $(filter full,$(LOGRAFT_INTEROP)),all,lograft) \
		$(BIN)/python -m pytest -q --timeout 600 tests/compatibility tests/spark \
		-m $(if $(filter full,$(LOGRAFT_INTEROP)),'interop or clients',interop)

packaging: install  ## lint, build and run the container, the Debian package, Testcontainers recipes; on Debian, as root
	$(BIN)/python -m pytest -q --timeout 1200 -m packaging tests/packaging

chaos: install  ## real nodes and clusters under kill, pause and partition while real clients write
	$(BIN)/python -m pytest -q -m chaos --timeout 900 tests/chaos tests/spark

chaos-figures: install  ## 20 minutes of it for isr, raft and Kafka each: docs/reliability/chaos.md
	LOGRAFT_CHAOS_CLUSTERS=isr,raft,kafka LOGRAFT_CHAOS_CLUSTER_SECONDS=1200 \
	LOGRAFT_CHAOS_RESULTS=docs/reliability $(BIN)/python -m pytest -q -m chaos --timeout 0 tests/chaos/test_clusters.py

bench: install  ## Lograft beside Apache Kafka in one run, its client beside others, as ratios
	$(BIN)/python -m bench
	$(BIN)/python -m bench.clients

clean:
	rm -rf $(VENV) .cache build dist .mypy_cache .ruff_cache .hypothesis
