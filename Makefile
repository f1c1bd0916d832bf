# The commands that people type; CMake does the building.  `make help` lists them.
BUILD ?= build
JOBS ?= $(shell nproc)
PREFIX ?= /usr/local
CMAKE_FLAGS ?=
SETUP := sh tools/setup
SOURCES = $(wildcard include/weir/*.h src/*/*.[ch] src/*/*/*.[ch] src/*/*.cpp programs/*.[ch] tests/*/*.[ch] fuzz/*.[ch] bench/*.[ch] \
	examples/*.[ch])

export JOBS

.PHONY: all run check check-long check-torch setup setup-check bench bench-peers bench-table fuzz install format lint clean help

all: ## build, with the engine if it is there
	cmake -S . -B $(BUILD) -DCMAKE_INSTALL_PREFIX=$(PREFIX) $(CMAKE_FLAGS)
	cmake --build $(BUILD) -j $(JOBS) $(TARGETS)

setup: ## install the missing packages (as root) and build the engine, once
	@$(SETUP)/packages.sh run
	@$(SETUP)/engine.sh

setup-check: ## the same, with what the tests need
	@$(SETUP)/packages.sh check
	@$(SETUP)/engine.sh
	@$(SETUP)/python.sh
	@$(SETUP)/mlx.sh >/dev/null || echo 'weir: the tests of weir.mlx are left out' >&2

run: setup ## set up, build, fetch a small model, and run it in less memory than it needs
	@$(MAKE) --no-print-directory TARGETS="--target weir_program" all
	@sh tools/setup/demo.sh $(BUILD)

check: setup-check ## set up, build, run every test; the last line counts them
	@sh tools/check/check.sh $(BUILD)

check-long: setup-check ## the same and the long tests, with a second compiler and the sanitizers over everything
	@sh tools/check/check.sh $(BUILD) long

check-torch: setup all ## the tests of the Python package with PyTorch, which takes 7 GB
	@sh tools/check/torch.sh $(BUILD)

bench: setup-check all ## measure; results go to build/bench
	@sh tools/check/bench.sh $(BUILD)

bench-peers: setup-check all ## measure against the PyPI package neurostream, which is installed below the build folder (5 GB)
	@WEIR_BENCH_LINE=neurostream sh tools/check/bench.sh $(BUILD)

bench-table: setup-check all ## measure the table of goals, each figure with its goal; 5 GB more are installed, and hours pass
	@WEIR_BENCH_LINE=table sh tools/check/bench.sh $(BUILD)

fuzz: ## run each fuzzer for FUZZ_SECONDS (60); needs clang
	@sh tools/check/fuzz.sh $(BUILD)

install: all ## install below PREFIX (and DESTDIR)
	cmake --install $(BUILD) --prefix $(PREFIX)

format: ## format the sources in place
	clang-format -i $(SOURCES)

lint: all ## clang-tidy, cppcheck and shellcheck, whichever are installed
	@sh tools/check/lint.sh $(BUILD)

clean: ## remove the build folder; the engine stays
	rm -rf $(BUILD)

help: ## list these commands
	@sed -n 's/^\([a-z-]*\):.* ## /\1: /p' Makefile | awk -F ': ' '{ printf "make %-12s %s\n", $$1, $$2 }'
