# What there is to do here, from nothing but python3 (3.11 or newer) and Java 17 or 21:
#   make demo    a small shop lands in a local lake, through a crash         make test   every test but the long ones
#   make check   format, lint, types, fast tests                            make soak   the long crash, load and race runs
#   make bench   speed, as ratios                                           make clean  remove everything made here
#   make test-newest, make test-lowest   the fast tests on the newest Python that is installed here, and with the lowest
#                                        versions that pyproject.toml allows

PYTHON ?= python3
UV_VERSION := 0.13.7
PYTEST := .venv/bin/python -m pytest
# Tests wait for servers and processes, too: one worker more than two cores can keep busy.
WORKERS ?= 3
# What a version of Python or of a library changes shows without processes and pages, and with few examples.
VERSIONS := --hypothesis-profile=few $(addprefix --ignore=tests/,docs flows progress services test_layers.py upgrade)
FAST := -n $(WORKERS) --dist worksteal -m "not spark and not servers and not slow and not soak" -q

# Bytecode saves seconds at every start of a process, and tests start hundreds.
unexport PYTHONDONTWRITEBYTECODE
unexport VIRTUAL_ENV
unexport PYTHONHOME
unexport PYTHONPATH
export UV_PYTHON_DOWNLOADS := never
export UV_LINK_MODE := copy
export UV_NO_PROGRESS := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1

# The JVMs of tests live for seconds or minutes: with its first compiler alone Java needs half the time.
test check soak test-newest test-lowest: export JAVA_TOOL_OPTIONS := -XX:TieredStopAtLevel=1 -XX:+UseSerialGC

# Two more environments are links into uv's cache, not 700 MB each.
test-newest test-lowest: export UV_LINK_MODE := hardlink

.PHONY: demo test test-newest test-lowest check lint bench soak clean java servers
.DELETE_ON_ERROR:

demo: java .venv/installed
	@.venv/bin/headwater demo

test: java .venv/installed servers
	$(PYTEST) -n $(WORKERS) --dist worksteal -m "not soak" -q

lint: .venv/installed
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/python tools/lint_words.py
	.venv/bin/mypy

check: lint
	$(PYTEST) $(FAST)

test-newest: .venv/installed
	@newest=$$(.ci/newest-python); \
	if [ -z "$$newest" ]; then echo "test-newest: skipped, there is no Python newer than 3.11 here"; exit; fi; \
	"$$newest" --version; \
	UV_PROJECT_ENVIRONMENT=.venv-newest .venv/bin/python -m uv sync --quiet --frozen --python "$$newest" && \
	.venv-newest/bin/python -m pytest $(FAST) $(VERSIONS)

# Not `uv sync`, which would write the lowest versions into uv.lock.
test-lowest: .venv/installed
	@.venv/bin/python -m uv venv --quiet --clear --python .venv/bin/python .venv-lowest
	@.venv/bin/python -m uv pip install --quiet --python .venv-lowest --resolution lowest-direct --editable . --group dev
	.venv-lowest/bin/python -m pytest $(FAST) $(VERSIONS)

soak: java .venv/installed servers
	$(PYTEST) -m soak -q

bench: java .venv/installed
	@.venv/bin/python -m uv sync --quiet --frozen --inexact --group peers --python .venv/bin/python
	@for each in $$(grep -l __main__ bench/*.py); do echo "== $$each"; .venv/bin/python "$$each" || exit 1; done

clean:
	rm -rf .venv .venv-newest .venv-lowest build dist headwater-demo .mypy_cache .ruff_cache .pytest_cache .hypothesis spark-warehouse
	find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} +

# One sentence before anything else when there is no Java that Spark can use.
java:
	@java="$${JAVA_HOME:+$$JAVA_HOME/bin/}java"; \
	version=$$("$$java" -version 2>&1 | sed -n '/version "/{s/.*version "\([0-9]*\).*/\1/p;q;}'); \
	case "$$version" in \
	  17|21) ;; \
	  "") echo "Java 17 or 21 is needed, and there is none ($$java): install it (for example: apt-get install openjdk-17-jre-headless) or point JAVA_HOME at it." >&2; exit 3 ;; \
	  *) echo "Java 17 or 21 is needed, and $$java is version $$version: point JAVA_HOME at another one." >&2; exit 3 ;; \
	esac

# The S3 server of the tests takes minutes to build, once for this user; without Go they use another one.
servers: .venv/installed
	@.venv/bin/python -m headwater.services.stack.s3

# Made again only when the dependencies change.
.venv/installed: pyproject.toml uv.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "Python 3.11 or newer is needed, and $(PYTHON) is not: make PYTHON=/path/to/python3.11 …" >&2; exit 3; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
	  { echo "Python's venv module is missing: install it (for example: apt-get install python3-venv)." >&2; exit 3; }
	@.venv/bin/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv .venv
	@if .venv/bin/python -m pip install --quiet "uv==$(UV_VERSION)"; then \
	  echo "installing what uv.lock names"; \
	  .venv/bin/python -m uv sync --quiet --frozen --inexact --compile-bytecode --python .venv/bin/python; \
	else \
	  echo "uv $(UV_VERSION) cannot be had here; pip installs the newest versions that pyproject.toml allows" >&2; \
	  .venv/bin/python -m pip install --quiet --upgrade "pip>=25.1" && .venv/bin/python -m pip install --quiet --editable . --group dev; \
	fi
	@touch $@
