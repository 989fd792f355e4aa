# SPDX-License-Identifier: Apache-2.0
# A small front for CMake: the commands people type. What takes more than a line lives in tools/.

PREFIX ?= /usr/local
PYTHON ?= /usr/bin/python3

.DEFAULT_GOAL := all
.PHONY: all dist demo demo-npu check test bench lint format soak install uninstall wheel tarball deb clean help

# What users get and what end-to-end tests run. Unit tests are run from other builds (tools/test.sh), benchmarks are built by bench.
BUILT = dist collector_testpoints examples/all tests/fakes/all tests/targets/all tests/twin/all

all: build/release/build.ninja ## build, and stage in build/dist what users get
	@cmake --build build/release --target $(BUILT)
	@cmake --install build/release --prefix build/dist > build/release/staged.txt

dist: build/release/build.ninja ## the same without tests and benchmarks
	@cmake --build build/release --target dist
	@cmake --install build/release --prefix build/dist > build/release/staged.txt

# Later changes of CMake files are ninja's own business: it configures again by itself.
build/release/build.ninja:
	@command -v cmake > /dev/null && command -v ninja > /dev/null || \
		{ echo "cmake or ninja is missing: run tools/install-packages.sh build" >&2; exit 1; }
	cmake --preset release

demo: ## install what is missing, build, trace an example on the simulated NPU
	@tools/demo.sh

demo-npu: ## the same with a training in PyTorch, device="npu": torch_npu comes from PyPI
	@tools/demo.sh npu

check: ## before each commit: build, lint, unit tests, a sample of the end-to-end tests
	@tools/check.sh

test: ## install what is missing, build every way, run every test
	@tools/test.sh

bench: all ## measure against the budgets (docs/benchmarks.md)
	@cmake --build build/release --target bench/all
	@$(PYTHON) bench/run.py

lint: ## the checks that need no build
	@$(PYTHON) tests/lint/run.py source

format: ## lay out all C files
	@$(PYTHON) tests/lint/check_format.py --fix

soak: ## the full numbers that `make test` samples; PART=kills, processes, ... (tools/soak.sh lists them), else all; log in build/
	@tools/soak.sh $(PART)

install: all ## install below PREFIX (default /usr/local); DESTDIR is honoured
	@DESTDIR="$(DESTDIR)" tools/install.sh "$(PREFIX)"

uninstall: ## take away what `make install` put below PREFIX
	@DESTDIR="$(DESTDIR)" tools/uninstall.sh "$(PREFIX)"

wheel: ## what pip installs, in build/wheels; WHEEL=aarch64: the cross build, WHEEL=any: the package without the tool
	@$(PYTHON) tools/build_wheel.py $(WHEEL)

tarball: dist ## build/dist as one file, in build/packages
	@tools/package.sh tarball

deb: dist ## a package for Debian and Ubuntu, in build/packages
	@tools/package.sh deb

clean: ## remove everything that was built
	rm -rf build

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
