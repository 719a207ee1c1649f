# The only front door. `make` alone lists what it can do.
#
# Everything runs from .venv, made here from the Python it finds; nothing else on the machine changes.
# The stamps in .venv say which lock was installed last, so a second run costs nothing.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
SHELL := /bin/bash

BIN := .venv/bin
RUN_STAMP := .venv/.installed-run
DEV_STAMP := .venv/.installed-dev
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check

# Rounds of the kill and fault tests; CI sets 3. `make soak` has its own, larger number.
ROUNDS ?= 3
SOAK_ROUNDS := $(if $(filter file,$(origin ROUNDS)),50,$(ROUNDS))
# Each starts a Spark.
PIPELINE_ROUNDS := $(if $(filter file,$(origin ROUNDS)),10,$(ROUNDS))
# Of interop and integration: many tests wait, so there are more processes than cores. 0: one by one.
# A file of tests stays in one process, with its broker and its JVM. The tests of make test wait a
# third of their time, for librdkafka mostly: with two processes two cores were idle for as long.
# Each process imports everything once, 12 s of processor time.
PROCESSES ?= 3
INTEGRATION_PROCESSES ?= 6
TEST_PROCESSES ?= 3
# Of services, whose tests wait most of the time, each for processes of its own.
SERVICE_PROCESSES ?= 5
# Tests marked `full` run in `make full` only (which sets FULL=1).
FULL ?=
EFFORT := $(if $(FULL),full,part)
NOT_HERE := not soak$(if $(FULL),, and not full)
PYTEST_ARGS = -m "$(NOT_HERE)" $(ARGS)
# Spark is large (0.5 GB), so it has an environment of its own.
SPARK_BIN := .cache/pipelines-python/bin
SPARK_STAMP := .cache/pipelines-python/.installed
# More for the command behind a target: make start ARGS="--listen localhost:9093"
ARGS ?=
# Where this is set, every process of every test would compile all of its modules anew.
unexport PYTHONDONTWRITEBYTECODE
# Tests flush thousands of small files, which costs nothing in memory: where there is a file system
# in it with room, they have their folders there. A kill -9 loses as little there as on a disk.
IN_MEMORY := /dev/shm
IN_MEMORY_KB := 4000000
TESTS_TMPDIR ?= $(shell free=$$(df --output=avail $(IN_MEMORY) 2>/dev/null | tail -n 1); \
  if [ -w $(IN_MEMORY) ] && [ "$${free:-0}" -ge $(IN_MEMORY_KB) ] \
    && ! grep -qs " $(IN_MEMORY) .*noexec" /proc/mounts; then echo $(IN_MEMORY); \
  else echo "$${TMPDIR:-/tmp}"; fi)
IN_TESTS_TMPDIR := TMPDIR=$(TESTS_TMPDIR)

.PHONY: help
help: ## list the targets
	@echo 'make TARGET, with ARGS="..." for the command behind it:'
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

.PHONY: start
start: setup ## start a node on localhost:9092, data in ./headrace-data
	@exec $(BIN)/headrace start $(ARGS)

.PHONY: demo
demo: setup ## watch money move between two banks while processes are killed, a minute
	@exec $(BIN)/headrace demo $(ARGS)

.PHONY: setup
setup: $(RUN_STAMP) ## make .venv with the command headrace: . .venv/bin/activate

.PHONY: setup-spark
setup-spark: $(RUN_STAMP) ## add Spark for pipelines to .venv, 0.5 GB
	@echo 'Installing what requirements/spark.txt locks: 0.5 GB, minutes'
	@$(subst --quiet,,$(PIP_INSTALL)) --require-hashes -r requirements/spark.txt

.PHONY: wheel
wheel: $(RUN_STAMP) ## build dist/headrace-VERSION-py3-none-any.whl
	@rm -rf build dist
	@$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .
	@ls dist/*.whl

INSTALLERS := .cache/installers

.PHONY: installers
installers: wheel $(INSTALLERS)/.installed ## install the wheel by pip, uv tool, uvx and pipx, and use each
	@$(INSTALLERS)/bin/python -m release.installers dist/*.whl

$(INSTALLERS)/.installed: requirements/installers.txt
	@$(BIN)/python release/environment.py $(INSTALLERS) requirements/installers.txt
	@touch $@

# VERSION=1.2.3; DRY=1 shows everything and changes nothing.
VERSION ?=
DRY ?=

.PHONY: release
release: $(DEV_STAMP) ## build and check both archives, write the changelog, tag: VERSION=1.2.3 DRY=1
	@[ -n "$(VERSION)" ] || { echo 'Name it: make release VERSION=1.2.3 (DRY=1 changes nothing)' >&2; exit 1; }
	@$(BIN)/python -m release $(VERSION) $(if $(DRY),--dry-run)

.PHONY: archives
archives: $(DEV_STAMP) ## build and check the source archive and the wheel of this checkout, into dist
	@$(BIN)/python -m release.archives

.PHONY: changelog
changelog: $(DEV_STAMP) ## move the fragments of changelog.d into CHANGELOG.md, under Unreleased
	@$(BIN)/python -m release.changelog

# The inner ring: tests that decide by themselves. In the order of pyproject.toml: what computes for
# long first, many short ones at the end, so that no process is alone with a long file. Those that
# wait are spread among them (tests/file_order.py).
.PHONY: test
test: $(DEV_STAMP) ## run the tests that need no waiting: the inner ring, two minutes
	$(IN_TESTS_TMPDIR) EFFORT=$(EFFORT) $(BIN)/python -m pytest -n $(TEST_PROCESSES) --dist loadfile \
	  --no-loadscope-reorder -m "not integration and $(NOT_HERE)" $(ARGS)

# The middle ring: real processes, real time, kills. Everything in tests/processes is marked so.
.PHONY: integration
integration: $(DEV_STAMP) ## run the tests with real processes and real time, minutes
	$(IN_TESTS_TMPDIR) EFFORT=$(EFFORT) $(BIN)/python -m pytest -n $(INTEGRATION_PROCESSES) --dist loadfile \
	  --no-loadscope-reorder tests/processes tests/sockets -m "integration and $(NOT_HERE)" $(ARGS)

COSTS := build/test-costs.jsonl

.PHONY: test-costs
test-costs: ## run make test and print the seconds of its tests by folder and file; RING=integration
	@$(MAKE) --no-print-directory $(or $(RING),test) ARGS="--costs $(COSTS) $(ARGS)"
	@$(BIN)/python -m tests.costs $(COSTS)

# Busy processes beside every third round of make flaky.
LOAD ?= 2

.PHONY: flaky
flaky: $(DEV_STAMP) ## run a ring many times, name each test that failed once: ROUNDS=30 LOAD=2 RING=integration
	@$(BIN)/python -m tests.flaky --rounds $(ROUNDS) --load $(LOAD) --ring $(or $(RING),test) --args "$(ARGS)"

.PHONY: coverage
coverage: $(DEV_STAMP) ## branches that make test covers, and the twenty least covered modules
	@$(MAKE) --no-print-directory test ARGS="-p pytest_cov --cov=headrace --cov-branch --cov-report= $(ARGS)"
	@$(BIN)/python -m tests.coverage_report

.PHONY: full
full: ## everything that CI runs and the tests marked full; docs/reliability-runs.md keeps the last good run
	.ci/run --full

DOCS_STAMP := .venv/.installed-docs

$(DOCS_STAMP): requirements/docs.txt $(DEV_STAMP)
	@echo 'Installing what requirements/docs.txt locks'
	@$(PIP_INSTALL) --require-hashes -r requirements/docs.txt
	@touch $@

# With --quiet MkDocs would count no warning, and so refuse nothing.
.PHONY: docs
docs: $(DOCS_STAMP) ## build the site of the docs, with all links checked: build/docs/index.html
	@set -o pipefail; NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict $(ARGS) 2>&1 \
	  | { grep -v '^INFO' || true; }

.PHONY: docs-serve
docs-serve: $(DOCS_STAMP) ## show the docs with search on localhost:8000, and again after each change
	@echo 'The docs are at http://localhost:8000; Ctrl-C stops'
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs serve --quiet --dev-addr localhost:8000 $(ARGS)

.PHONY: check
check: $(DEV_STAMP) docs ## format, lint, strict types, layers, generated code up to date, links, deploy files
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m headrace.wire.protocol.generator --check
	@$(MAKE) --no-print-directory check-deploy

# Linters of what is no Python. systemd looks for the program that a unit names: any will do here.
.PHONY: check-deploy
check-deploy: $(DOCS_STAMP)
	$(BIN)/hadolint Dockerfile
	$(BIN)/shellcheck deploy/*.sh
	$(BIN)/check-jsonschema --builtin-schema vendor.compose-spec deploy/compose*.yaml
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.github-issue-forms .github/ISSUE_TEMPLATE/[dw]*.yml
	$(BIN)/zizmor --quiet --offline .github/workflows
	@if command -v kubectl >/dev/null; then echo 'kubectl kustomize deploy' && kubectl kustomize deploy >/dev/null; \
	else echo 'kubectl is not here: deploy/kubernetes.yaml was not checked'; fi
	@if command -v systemd-analyze >/dev/null; then folder=$$(mktemp -d) && \
	  sed 's#/opt/headrace/bin/headrace#/bin/true#' deploy/headrace.service > "$$folder/headrace.service" && \
	  echo 'systemd-analyze verify deploy/headrace.service' && \
	  systemd-analyze verify "$$folder/headrace.service" && rm -r "$$folder"; \
	else echo 'systemd-analyze is not here: deploy/headrace.service was not checked'; fi

.PHONY: format
format: $(DEV_STAMP) ## let ruff format and repair what it can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# What clients and tools of others do with three brokers is a part of make cluster. Each file has a
# cluster of its own, or two.
OF_CLUSTERS := tests/interop/test_cluster_tools.py tests/interop/test_cluster_clients.py \
               tests/conformance/test_cluster_of_three.py
WITHOUT_CLUSTERS := $(OF_CLUSTERS:%=--ignore=%)
CLUSTERS ?= 2

# The conformance file is the longest by far: begun last, it would be waited for alone.
.PHONY: interop
interop: $(DEV_STAMP) $(SPARK_STAMP) tools servers ## clients and tools of others, and answers compared with Apache Kafka
	$(IN_TESTS_TMPDIR) ROUNDS=$(ROUNDS) $(BIN)/python -m pytest -n $(PROCESSES) --dist loadfile \
	  --no-loadscope-reorder tests/conformance tests/interop $(WITHOUT_CLUSTERS) $(PYTEST_ARGS)

.PHONY: tools
tools: $(DEV_STAMP) programs ## bring what make interop runs of others into .cache, 0.8 GB
	@$(BIN)/python -m tests.interop.ecosystem

.PHONY: services
services: $(DEV_STAMP) servers ## delay and apps with real processes, PostgreSQL, MariaDB, Redis
	$(IN_TESTS_TMPDIR) ROUNDS=$(ROUNDS) $(BIN)/python -m pytest -n $(SERVICE_PROCESSES) --dist worksteal \
	  tests/services $(PYTEST_ARGS)

.PHONY: cluster
cluster: $(DEV_STAMP) tools ## three brokers as processes: kill -9, restarts, clients and tools of others
	$(IN_TESTS_TMPDIR) $(BIN)/python -m pytest -n $(CLUSTERS) --dist loadfile \
	  tests/cluster $(OF_CLUSTERS) $(PYTEST_ARGS)

CONSOLE_STAMP := .venv/.installed-console
# Where the tests leave the pictures of the guide: PICTURES=docs/guide renews them.
PICTURES ?=

.PHONY: console
console: $(CONSOLE_STAMP) browser ## the web console in a real Chromium
	$(IN_TESTS_TMPDIR) PICTURES=$(PICTURES) $(BIN)/python -m pytest tests/console $(PYTEST_ARGS)

$(CONSOLE_STAMP): requirements/console.txt $(DEV_STAMP)
	@echo 'Installing what requirements/console.txt locks'
	@$(PIP_INSTALL) --require-hashes -r requirements/console.txt
	@touch $@

.PHONY: browser
browser:
	@missing=$$($(missing_browser)); [ -z "$$missing" ] || { $(install_missing); }

.PHONY: guides
guides: $(DEV_STAMP) programs ## type every command of README and guides, in order, on one node
	$(BIN)/python -m pytest tests/guides $(PYTEST_ARGS)

# Of make pipelines: each has a Spark and a broker of its own, and waits a good part of the time.
# 0: one by one.
SPARKS ?= 2

.PHONY: pipelines
pipelines: $(SPARK_STAMP) servers ## data pipelines on a real Spark, minutes
	$(IN_TESTS_TMPDIR) ROUNDS=$(ROUNDS) $(SPARK_BIN)/python -m pytest -n $(SPARKS) --dist loadfile \
	  tests/pipelines $(PYTEST_ARGS)

SEED ?= 0

.PHONY: drawn-pipelines
drawn-pipelines: $(SPARK_STAMP) servers ## drawn models, streams and kills beside plain Python: SEEDS=100
	$(IN_TESTS_TMPDIR) PIPELINE_SEED=$(SEED) PIPELINE_SEEDS=$(SEEDS) $(SPARK_BIN)/python -m pytest \
	  -n $(SPARKS) --dist loadfile tests/pipelines/test_drawn_models.py \
	  tests/pipelines/test_drawn_streams.py tests/pipelines/test_generated.py $(PYTEST_ARGS)

$(SPARK_STAMP): requirements/spark.txt requirements/dev.txt $(DEV_STAMP)
	@echo 'Installing what requirements/spark.txt locks'
	@$(BIN)/python -m venv .cache/pipelines-python
	@$(SPARK_BIN)/python -m pip install --quiet --no-compile --require-hashes -r requirements/dev.txt
	@$(SPARK_BIN)/python -m pip install --quiet --no-compile --require-hashes -r requirements/spark.txt
	@$(SPARK_BIN)/python -m pip install --quiet --no-deps --no-build-isolation --no-index -e .
	@touch $@

# Each of these brings something before the suites that need it: .ci/suites.py
.PHONY: develop spark packages
develop: $(DEV_STAMP)
spark: $(SPARK_STAMP)
	@$(SPARK_BIN)/python -c 'from headrace.pipelines.spark import jars as j; j.jars(j.user_cache(), print)'
packages: ## install what the other targets run, if it is missing (Debian, as root)
	@missing=$$($(missing_programs); $(missing_servers); $(missing_browser)); \
	missing=$$(echo $$missing | tr ' ' '\n' | sort -u | tr '\n' ' '); \
	[ -z "$${missing// /}" ] || { $(install_missing); }

# Debian's packages; a server that is on the machine is taken as it is.
define missing_servers
command -v redis-server >/dev/null || echo redis-server; \
ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || command -v initdb >/dev/null || echo postgresql; \
command -v mariadb-install-db >/dev/null || echo mariadb-server
endef
define missing_browser
command -v chromium >/dev/null || echo chromium
endef
define missing_programs
for pair in $(TOOLS); do command -v "$${pair%%:*}" >/dev/null || echo "$${pair##*:}"; done
endef
define install_missing
echo "installing $$missing"; \
apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
  apt-get install -y -qq --no-install-recommends $$missing >/dev/null
endef

.PHONY: servers
servers:
	@missing=$$($(missing_servers)); [ -z "$$missing" ] || { $(install_missing); }

.PHONY: conformance
conformance: $(DEV_STAMP) programs ## only the comparison with Apache Kafka
	ROUNDS=$(ROUNDS) $(BIN)/python -m pytest tests/conformance $(PYTEST_ARGS)

.PHONY: soak
soak: $(DEV_STAMP) $(SPARK_STAMP) servers ## the long runs: kill -9 under load, 50 rounds
	ROUNDS=$(SOAK_ROUNDS) $(BIN)/python -m pytest tests/soak --ignore tests/soak/test_pipelines.py $(ARGS)
	$(BIN)/python -m pytest -m soak tests/interop/test_backlog.py tests/interop/test_outbox.py \
	  tests/services/test_outbox.py tests/services/test_ship_logs.py tests/sockets/app/test_shadow.py $(ARGS)
	ROUNDS=$(PIPELINE_ROUNDS) $(SPARK_BIN)/python -m pytest tests/soak/test_pipelines.py $(ARGS)
	POWER_CUTS=1000 $(BIN)/python -m pytest tests/unit/power_cut $(ARGS)

# Seeds that the simulator runs, of the metadata quorum and of whole clusters each;
# tests/simulation has the fixed ones of make test.
SEEDS ?= 200

.PHONY: sim
sim: $(DEV_STAMP) ## the quorum and whole clusters under faults in virtual time: SEEDS=10000
	$(BIN)/python -m headrace.node.simulator --seeds $(SEEDS) $(ARGS)

# Minutes that the fuzzer runs; CI takes half a minute.
MINUTES ?= 1
FUZZ_STAMP := .venv/.installed-fuzz

.PHONY: fuzz
fuzz: $(FUZZ_STAMP) ## fuzz the whole request path: MINUTES=10
	$(BIN)/python -m tests.fuzz --minutes $(MINUTES) $(ARGS)

$(FUZZ_STAMP): requirements/fuzz.txt $(DEV_STAMP)
	@echo 'Installing what requirements/fuzz.txt locks'
	@$(PIP_INSTALL) --require-hashes -r requirements/fuzz.txt
	@touch $@

.PHONY: bench
bench: $(DEV_STAMP) programs ## measure beside Apache Kafka in one run, print ratios
	$(BIN)/python -m benchmarks $(ARGS)

.PHONY: map
map: $(DEV_STAMP) ## redraw the map of files in docs/map.md
	$(BIN)/python -m tests.architecture_map

.PHONY: lock
lock: $(DEV_STAMP) ## write requirements/*.txt anew from requirements/*.in
	@for name in run app dev spark fuzz console docs installers; do \
	  $(BIN)/pip-compile --quiet --upgrade --generate-hashes --allow-unsafe --strip-extras \
	    --no-annotate --no-header --no-emit-index-url --no-emit-trusted-host --no-emit-find-links \
	    --output-file requirements/$$name.txt requirements/$$name.in || exit 1; \
	done

.PHONY: clean
clean: ## remove .venv and caches; data stays
	rm -rf .venv .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -prune -exec rm -rf {} +

# ---- what the targets above stand on ------------------------------------------------------------

# A Python of 3.11 or newer: the one named by PYTHON, else python3, else the newest that has a name.
define find_python
for python in $${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11}; do \
  if "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then break; fi; \
  python=; \
done; \
if [ -z "$$python" ]; then \
  echo 'Headrace needs Python 3.11 or newer; none was found. Name yours with PYTHON=/path/to/python3.' >&2; \
  exit 1; \
fi; \
if ! "$$python" -c 'import venv, ensurepip' 2>/dev/null; then \
  version=$$("$$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])'); \
  if [ "$$python" = python3 ]; then version=3; fi; \
  echo "This Python cannot make virtual environments. Install them with: apt-get install python$$version-venv" >&2; \
  exit 1; \
fi
endef

# With uv on the path uv installs, else pip.
$(RUN_STAMP): requirements/app.txt pyproject.toml Makefile
	@$(find_python); "$$python" release/environment.py .venv requirements/app.txt --editable
	@touch $@

# pytest compiles tests in its own way, 16 s of processor time for all. Left to `make test`, each of
# its processes would do it, at the same time.
$(DEV_STAMP): requirements/dev.txt $(RUN_STAMP)
	@$(BIN)/python release/environment.py .venv requirements/dev.txt
	@echo 'Compile the tests, once'
	@$(BIN)/python -m pytest --collect-only -q >/dev/null || true
	@touch $@

# program:Debian package. A missing one is a failure with the name of what to install.
TOOLS := java:default-jdk-headless javac:default-jdk-headless mvn:maven go:golang-go \
         node:nodejs npm:npm kcat:kcat

.PHONY: programs
programs:
	@missing=; \
	for pair in $(TOOLS); do \
	  if ! command -v "$${pair%%:*}" >/dev/null; then \
	    echo "$${pair%%:*} is missing; install the package $${pair##*:}" >&2; missing=yes; \
	  fi; \
	done; \
	[ -z "$$missing" ]
