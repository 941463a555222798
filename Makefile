# Two commands for newcomers, `make demo` and `make test`. Each sets up what it needs, and nothing that is there already.

PYTHON ?=
PYTEST_ARGS ?=
DURATION ?= 60
SEED ?=
BENCH ?=
REV ?=
export PYTHON
# The tests start hundreds of processes, which import the same modules: those are compiled once.
export PYTHONDONTWRITEBYTECODE :=

BIN := .venv/bin
# Most tests wait for a server, or for a timeout, most of the time: eight at once, each in a process and on a server of
# its own.
PYTEST := $(BIN)/python -m pytest
SHARED := --numprocesses 8 --dist loadgroup --max-worker-restart 0
# In a fresh checkout, one process compiles the tests before eight import them, each of which would compile them all;
# and one archives the classes of a server, as each of hundreds would read them all.
COMPILED := [ -d tests/__pycache__ ] || $(PYTEST) --collect-only --quiet $(PYTEST_ARGS) >/dev/null 2>&1; \
  $(BIN)/python -m tests.helpers.class_archive

.PHONY: help demo test test-rest test-fast test-servers coverage mutants newest-kazoo newest-python soak bench bench-against docs package lint clean
.NOTPARALLEL:

help: ## this list
	@while IFS= read -r line; do \
	  case $$line in [a-z]*': ## '*) printf 'make %-14s %s\n' "$${line%%:*}" "$${line##*: ## }" ;; esac; \
	done <Makefile
	@printf '\n%s\n%s\n' 'PYTHON=... names the interpreter to use, PYTEST_ARGS=... passes more to pytest;' \
	  'DURATION=... (seconds) and SEED=... are for soak, BENCH=... for bench, REV=... for bench-against.'

demo: ## threads of several processes share a lock while some of them die: is the count still right?
	@tools/venv
	@$(BIN)/python examples/demo

test: ## lint, and the tests that a change is likely to break; what they need is installed (by apt-get, where there is one)
	@tools/venv test lint
	@tools/packages
	@{ $(COMPILED); } & $(MAKE) --no-print-directory lint; status=$$?; wait; exit $$status
	$(PYTEST) $(SHARED) -m 'not (long or later)' $(PYTEST_ARGS)

test-rest: ## the others: those that take long, those of the tools, and once more on tasks those of threads
	@tools/venv test
	@tools/packages
	$(PYTEST) $(SHARED) -m 'long or later' $(PYTEST_ARGS)

test-fast: ## of the first, those that need no server and no Java: a minute
	@tools/venv test
	$(PYTEST) $(SHARED) --numprocesses auto -m 'not (server or long or later)' $(PYTEST_ARGS)

# Without the simulation, whose threads are greenlets, and without what is long, much of which traces lines itself.
coverage: ## what the tests on real servers run of the package, by line and branch, in all threads and processes
	@tools/venv test
	@tools/packages
	$(BIN)/python -m coverage erase
	$(BIN)/python -m coverage run -m pytest $(SHARED) --ignore=tests/simulation -m 'not long' $(PYTEST_ARGS)
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage report

test-servers: ## the tests that need a server, on Debian's ZooKeeper 3.8 and on pyspark's 3.9
	@tools/venv test server
	@tools/packages
	ZKCONCURRENT_SERVER=debian $(PYTEST) $(SHARED) -m server $(PYTEST_ARGS)
	ZKCONCURRENT_SERVER=pyspark $(PYTEST) $(SHARED) -m server $(PYTEST_ARGS)

soak: ## random use under random faults, the history checked; then all of the simulation, interrupts and strikes: DURATION=600 SEED=7
	@tools/venv test
	@tools/packages
	$(BIN)/python -m tests.soak --duration $(DURATION) $(if $(SEED),--seed $(SEED))
	SIM_PLACES=1000 SIM_TIMES=10 $(BIN)/python -m pytest tests/simulation -k strikes
	SIM_PLACES=1000 TASK_CYCLES=10000 LEAK_USES=1000 $(PYTEST) --numprocesses auto tests/faults/test_interrupts.py \
	  tests/faults/test_barrier.py tests/faults/test_hangs.py tests/faults/test_leaks.py tests/aio/test_costs.py
	$(BIN)/python -m tests.faults.block_storm --strikes 10000
	PROPERTY_EXAMPLES=300 $(PYTEST) tests/properties

mutants: ## small changes of the library, 400: which do the tests without a server kill? tests/mutants/results.md; an hour
	@tools/venv test
	$(BIN)/python -m tests.mutants

newest-kazoo: ## the contract tests on the newest kazoo there is, in an environment of its own: may its cap be lifted?
	@tools/venv test
	@tools/packages
	$(BIN)/python -m venv --clear build/newest-kazoo
	build/newest-kazoo/bin/python -m pip install -qq --disable-pip-version-check --editable '.[test]'
	build/newest-kazoo/bin/python -m pip install -qq --disable-pip-version-check --upgrade --pre kazoo
	@installed=$$(build/newest-kazoo/bin/python -c 'from kazoo.version import __version__; print(__version__)'); \
	newest=$$(build/newest-kazoo/bin/python -m pip index versions --pre kazoo 2>/dev/null | sed -n '1s/^kazoo (\(.*\))$$/\1/p'); \
	echo "kazoo $$installed is tested; the newest is $${newest:-unknown}"; [ "$$installed" = "$$newest" ]
	build/newest-kazoo/bin/python -m pytest tests/contract $(PYTEST_ARGS)

newest-python: ## the tests that need no ZooKeeper, on Python 3.14, which must be on the path, in an environment of its own
	python3.14 -m venv --clear build/newest-python
	build/newest-python/bin/python -m pip install -qq --disable-pip-version-check --editable '.[test]'
	ZKCONCURRENT_SERVER=memory build/newest-python/bin/python -m pytest $(SHARED) --numprocesses auto tests/unit tests/contract \
	  tests/aio --ignore tests/contract/test_raw.py $(PYTEST_ARGS)

docs: ## these pages as HTML, in build/docs; a warning is an error
	@tools/venv docs
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --fresh-env --quiet docs build/docs
	@echo 'Open build/docs/index.html'

package: ## wheel and sdist, in dist; each is installed into an empty environment and used on a server
	@tools/venv package
	@tools/packages
	@tools/package

bench-against: ## this package beside that of another revision, 3 minutes: REV=main
	@tools/venv test bench
	@tools/packages
	$(BIN)/python -m benchmarks --against $(REV) $(BENCH)

bench: ## ours, kazoo's recipes and Curator side by side, half an hour: BENCH='--quick', BENCH='uncontended handover'
	@tools/venv test bench
	@tools/packages
	$(BIN)/python -m benchmarks $(BENCH)

lint: ## style, format and types
	@tools/venv lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy zkconcurrent pytest_zkconcurrent.py examples/demo tests/typing
	$(BIN)/pyright --warnings --pythonpath $(BIN)/python

clean: ## removes the environment, caches and the pictures
	rm -rf build dist .tox .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis *.egg-info demo-timeline.svg
