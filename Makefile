PYTHON ?= python3
BIN := .venv/bin
RUNS := .venv/.runs
STAMP := .venv/.installed

.PHONY: run test long slow browser chaos compiled pure lint fix bench soak docs site engines protocols clean

$(RUNS): pyproject.toml  # what the gateway needs
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --editable .
	touch $(RUNS)

$(STAMP): $(RUNS)  # and what its developers need
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --group dev
	touch $(STAMP)

run: $(RUNS)  ## start the gateway in front of two simulated models
	$(BIN)/enginehouse serve

test long: PROCESSES ?= $$((2 * $$(getconf _NPROCESSORS_ONLN) + 1))
test long: PYTEST = $(BIN)/python -m pytest --numprocesses=$(PROCESSES) --dist=loadfile --no-loadscope-reorder
test: $(STAMP)  ## run the tests, in two processes for each core and one more: many wait for engines
	$(PYTEST)

long: $(STAMP)  ## run the tests that compute for long: seeds with faults, simulations of the docs, contrib/
	$(PYTEST) -m "long and not slow"

slow: $(STAMP)  ## run the tests that take minutes
	$(BIN)/python -m pytest -m slow

browser:  ## install what the slow tests of the dashboard need besides Node.js and Chromium
	npm install --no-audit --no-fund --prefix tests/plugins/dashboard/browser

chaos: SEEDS ?= 10000
chaos: FIRST ?= 0
chaos: $(STAMP)  ## run the gateway with simulated faults: make chaos SEEDS=100000
	nice $(BIN)/python -m tests.chaos --first=$(FIRST) --seeds=$(SEEDS) --jobs=$$(nproc)

compiled: $(STAMP)  ## compile the hot path in place; changes of the compiled modules then need another make compiled
	$(BIN)/python tools/compiled.py

pure: $(STAMP)  ## remove the output of make compiled
	$(BIN)/python tools/compiled.py --remove

lint: $(STAMP)  ## check style, types and import contracts
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/picture.py

fix: $(STAMP)  ## apply ruff's automatic fixes
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

bench: $(STAMP)  ## measure routing, the relay and the simulated engine
	$(BIN)/python -m pytest benchmarks --benchmark-only -s
	$(BIN)/python benchmarks/relay.py
	$(BIN)/python benchmarks/replay.py

soak: $(STAMP)  ## watch the memory of a gateway under load, then 15 minutes of it while its engines fail and heal
	$(BIN)/python benchmarks/soak.py
	$(BIN)/python -m tests.soak

docs: $(STAMP)  ## write the generated pages of docs/
	$(BIN)/python docs/generate.py

site: docs  ## make the documentation's site in build/site
	$(BIN)/python -m pip install --quiet --group site
	$(BIN)/mkdocs build --strict

engines: ENGINES ?= llama-server
engines: $(STAMP)  ## install real engines into the user's cache, once: make engines ENGINES="llama-server vllm"
	$(BIN)/python -m pip install --quiet --editable '.[engines]'
	$(BIN)/python -m tools.engines $(ENGINES)

protocols:  ## compile the .proto files; code of an old compiler runs with every newer protobuf
	$(PYTHON) -m venv .venv/protocols
	.venv/protocols/bin/python -m pip install --quiet grpcio-tools==1.62.3 setuptools
	.venv/protocols/bin/python -m grpc_tools.protoc -Iplugins/enginehouse_kit/llumlet \
	  --python_out=plugins/enginehouse_kit/llumlet --pyi_out=plugins/enginehouse_kit/llumlet llumlet.proto
	cd contrib/enginehouse-envoy/src && $(CURDIR)/.venv/protocols/bin/python -m grpc_tools.protoc \
	  -I. --python_out=. --pyi_out=. enginehouse_envoy/envoy.proto

clean:
	rm -rf .venv dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
