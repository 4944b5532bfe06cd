# Everything a fresh machine needs: `make pretrain`, `make test`. `make help` lists the rest.
SHELL := /bin/bash
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PRESET ?= quickstart
ARGS ?=
GLUE ?=
GRID ?= none
MINUTES ?= 20
CHECKPOINT ?=
OUTPUT ?= output
MLFLOW_PORT ?= 5000
SECONDS ?= 60
SEED ?= 0
TORCH := $(shell sed -n 's/^torch==//p' cluster/requirements.txt)
# Where pip finds the CPU build of torch, when its own settings do not say: the index that pytorch.org names for "CPU".
TORCH_INDEX ?=

.PHONY: help pretrain finetune finetune-glue lint check test test-all mutants random-mutants fuzz bench chaos audit cluster-check docs mlflow stop clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 24
	@echo "  PRESET=$(PRESET)   ARGS='--steps 500 --seed 1'   OUTPUT=$(OUTPUT)   TORCH_INDEX=URL   PYTHON=$(PYTHON)"

pretrain: $(VENV)/.installed ## train a small BERT on the built-in corpus through a local Ray head, in minutes
	@cluster/head.sh start
	@cluster/head.sh submit python jobs/pretrain.py $(PRESET) --output '$(OUTPUT)' $(ARGS)
	@echo
	@echo "another run:   make pretrain ARGS='--seed 1'        the runs as pictures:   make mlflow        the head:   make stop"
	@echo "a shell for \`ray job submit\` to this head, by the lines of:   cluster/head.sh environment"

# The newest run's model, or CHECKPOINT=…
newest = checkpoint='$(CHECKPOINT)'; test -n "$$checkpoint" || checkpoint=$$(ls -td '$(OUTPUT)'/runs/*/export 2>/dev/null | head -1); \
    test -n "$$checkpoint" || { echo "error: there is no finished run in $(OUTPUT)/runs: make pretrain first, or give CHECKPOINT=folder" >&2; exit 2; }
# The published grids whole take what they take; what is not a grid fits MINUTES.
minutes = $(if $(filter none,$(GRID)),--minutes $(MINUTES),--search.grid $(GRID))

finetune: $(VENV)/.installed ## fine-tune the newest run's model, or CHECKPOINT=…, on the built-in task: which package is a documentation string of
	@$(newest); $(BIN)/python jobs/finetune.py --checkpoint "$$checkpoint" --task builtin --output '$(OUTPUT)' $(minutes) $(ARGS)

finetune-glue: $(VENV)/.installed ## the same on GLUE, in GLUE=folder or downloaded once; GRID=bert or miniatures for the published grids, else within MINUTES=20
	@$(newest); $(BIN)/python jobs/finetune.py --checkpoint "$$checkpoint" --task glue $(if $(GLUE),--data '$(GLUE)') --output '$(OUTPUT)' $(minutes) $(ARGS)

# Two processes; the tests on Ray first.
PYTEST := $(BIN)/python -m pytest --numprocesses 2 --no-loadscope-reorder --max-worker-restart 0
UNIT := text wikipedia tables tasks objectives saved fine_tuned show model embed predict export adapt ablation evaluation workflows command_line
LOOSE := config errors imports moved mutants project_files touched tree
QUICK := $(UNIT:%=tests/unit/%) $(LOOSE:%=tests/unit/test_%.py)

lint: $(VENV)/.installed-test ## lint, formatting and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/ty check pipeline jobs

check: lint ## the same, and the tests that need neither Ray nor minutes
	$(PYTEST) $(QUICK)

test: $(VENV)/.installed-test ## run the tests of the first tier, in minutes
	$(PYTEST) $(ARGS)

test-all: $(VENV)/.installed-test ## run both tiers of tests: before a release, or after a change of many parts
	HYPOTHESIS_PROFILE=$${HYPOTHESIS_PROFILE:-many} $(PYTEST) -m 'not long' $(ARGS)

mutants: $(VENV)/.installed-test ## break one guarantee of the pipeline at a time, in a copy, and see that its tests fail (ARGS='NAME …' for some)
	$(BIN)/python -m tests.mutants.run $(ARGS)

random-mutants: $(VENV)/.installed-test ## change the code at random places, one at a time, and measure the share that the tests notice (ARGS='--count 30 …')
	$(BIN)/python -m tests.mutants.random_mutants --seed $(SEED) $(ARGS)

fuzz: $(VENV)/.installed-test ## throw mutated files of every format at the readers for SECONDS=60 from SEED=0
	$(BIN)/python tests/fuzz/readers.py --seconds $(SECONDS) --seed $(SEED)

bench: $(VENV)/.installed-test ## measure the text path on the built-in corpus, beside what others use
	$(BIN)/python jobs/bench.py text
	$(BIN)/python jobs/bench.py stream

chaos: $(VENV)/.installed-test ## run training on a simulated cluster through faults at random for MINUTES=20 from SEED=0, and compare it with an undisturbed one
	$(BIN)/python -m tests.chaos.run --minutes $(MINUTES) --seed $(SEED) $(ARGS)

audit: $(VENV)/.installed-test ## ask the public advisories about every pinned version; needs the internet
	$(BIN)/pip-audit --no-deps --disable-pip --requirement cluster/requirements.txt

cluster-check: $(VENV)/.installed-test ## check the files of clusters (AWS, Google Cloud, Kubernetes, SkyPilot) without a cloud
	@$(BIN)/python -m cluster.check

DOCUMENTS := README.md LICENSE jobs cluster pipeline/README.md pipeline/CHANGELOG.md tests/README.md
docs: $(VENV)/.installed ## write the documents as a searchable site to build/site
	@$(BIN)/pip install --quiet --constraint cluster/requirements.txt --editable '.[docs]'
	@rm -rf build/docs build/site && mkdir -p build/docs && tar cf - $(DOCUMENTS) | tar xf - -C build/docs
	@cp .github/SECURITY.md build/docs && sed 's,(.github/,(,' CONTRIBUTING.md > build/docs/CONTRIBUTING.md  # a site has no dot folders
	@$(BIN)/zensical build --config-file .zensical.toml --clean --strict
	@echo "to read it: $(PYTHON) -m http.server --directory build/site, then http://127.0.0.1:8000"

mlflow: $(VENV)/.installed ## start MLflow on 127.0.0.1 and print its pages
	@mkdir -p '$(OUTPUT)'
	@case "$${MLFLOW_TRACKING_URI:-}" in http*) echo "error: MLFLOW_TRACKING_URI is a server already: open $$MLFLOW_TRACKING_URI" >&2; exit 2;; esac
	@store=$$($(BIN)/python -c 'import sys; from pipeline.command_line.exit_codes import job_main; from pipeline.tracking.runs import tracking_uri; sys.exit(job_main("stopped")(lambda words: print(tracking_uri(None, *words)))(sys.argv[1:]))' '$(OUTPUT)') || exit 2; export MLFLOW_DISABLE_TELEMETRY=true MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false; \
	    $(BIN)/python -m pipeline.tracking.views "$$store" $(MLFLOW_PORT) && \
	    exec $(BIN)/mlflow ui --host 127.0.0.1 --port $(MLFLOW_PORT) --workers 1 --backend-store-uri "$$store"

stop: ## stop the Ray head that `make pretrain` started, and nothing else
	@cluster/head.sh stop

clean: ## delete the virtual environment; runs and corpora in OUTPUT stay
	rm -rf $(VENV)

# Without an NVIDIA GPU the CPU build is tried first: the default build for Linux brings gigabytes of CUDA libraries.
$(VENV)/.installed: pyproject.toml cluster/requirements.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "error: Python 3.11 or newer is needed, $(PYTHON) is $$($(PYTHON) --version); set PYTHON=…" >&2; exit 2; }
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
	@echo "installing the pinned dependencies into $(VENV)"
	@if ! command -v nvidia-smi >/dev/null; then \
	    $(BIN)/pip install --quiet 'torch==$(TORCH)+cpu' $(addprefix --extra-index-url ,$(TORCH_INDEX)) 2>/dev/null \
	    || echo "no CPU build of torch $(TORCH) in pip's indexes (TORCH_INDEX=… names one); taking the default build"; fi
	@$(BIN)/pip install --quiet --constraint cluster/requirements.txt --editable .
	@touch $@

$(VENV)/.installed-test: $(VENV)/.installed
	@$(BIN)/pip install --quiet --constraint cluster/requirements.txt --editable '.[test]'
	@touch $@
