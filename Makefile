# SnapGate: one target a command. CI runs these and nothing else.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
PY := .venv/bin/python

.PHONY: help setup runner demo prove-limits test test-all check fix lock runner-asan runner-arm64 runner-android bench-verdicts real-model bench-prepare bench-runtime bench-phones conformance fuzz clean

help:            ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | expand -t 18

setup:           ## virtual environment in .venv, pinned packages
	@tools/setup.sh

runner: setup    ## native runner for this host: build/host/snapgate-runner
	@tools/build-runner.sh host

demo: setup      ## the main job on virtual phones; leaves out/report.html
	@tools/demo.sh

test: setup runner ## every test this host allows; ends with the table of lanes not run
	@$(PY) -m pytest tests -n 2 --dist loadfile --no-loadscope-reorder -m "not slow"

test-all: setup  ## installs the rest and runs everything; fails if a lane did not run
	@tools/install-lanes.sh
	@tools/build-runner.sh host
	@tools/build-runner.sh host-asan
	@tools/build-runner.sh linux-arm64
	@$(PY) -m pytest tests -n 2 --dist loadfile --no-loadscope-reorder --durations 30 --require-lanes

check: setup     ## formats, lints and types; changes nothing
	@.venv/bin/ruff format --check .
	@.venv/bin/ruff check .
	@.venv/bin/mypy
	@find device_runtime harness/virtual/pathmap -name '*.cpp' -o -name '*.h' | xargs .venv/bin/clang-format --dry-run --Werror --style=file:device_runtime/.clang-format

fix: setup       ## formats and repairs what can be repaired
	@.venv/bin/ruff format .
	@.venv/bin/ruff check --fix .
	@find device_runtime harness/virtual/pathmap -name '*.cpp' -o -name '*.h' | xargs .venv/bin/clang-format -i --style=file:device_runtime/.clang-format

lock:            ## resolves requirements.lock again, after a change of pyproject.toml
	@$(PY) -m pip install -q uv
	@.venv/bin/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	  --no-emit-find-links --no-annotate --all-extras --custom-compile-command "make lock" pyproject.toml -o requirements.lock

bench-verdicts: setup ## how often verdicts are wrong, by simulation; writes docs/verdict-benchmark.md
	@$(PY) benchmarks/verdicts.py

prove-limits: runner ## tries the gates on good and damaged models on virtual phones; writes their proofs into suites/limits.toml (ONLY=missing)
	@$(PY) tools/prove_limits.py $(ONLY)

fuzz: setup      ## libFuzzer on the runner's readers, 60 s each; needs clang
	@tools/fuzz.sh

conformance: setup ## the virtual adbd and the genuine one of Debian trixie, asked the same; skipped with a reason where it cannot be had
	@SNAPGATE_GENUINE_ADBD=1 $(PY) -m pytest tests/conformance -rs

bench-phones: setup ## pushes, eight phones, faults at every stage of a run, kills; writes docs/fault-matrix.md (CASES=40 KILLS=20 for a sample)
	@$(PY) benchmarks/phones.py --cases $(or $(CASES),0) --kills $(or $(KILLS),100) $(if $(CASES),,--out docs/fault-matrix.md)

bench-runtime: setup ## the runner's own time and memory beside bare loops and onnxruntime-qnn; writes docs/runtime-benchmark.md
	@tools/build-runner.sh host
	@$(PY) benchmarks/runtime.py

real-model: setup ## a real model of 0.5 B parameters, prepared and set against fp32 (docs/checkpoints.md)
	@$(PY) tools/real_model.py

bench-prepare: setup ## time and memory of preparing over model size; writes docs/prepare-sizes.md (SIZES="0.1B 0.5B")
	@$(PY) benchmarks/prepare_sizes.py $(SIZES)

runner-asan: setup ## the runner and its unit tests under ASan and UBSan
	@tools/build-runner.sh host-asan

runner-arm64: setup ## the runner for linux-arm64 (Debian's cross compiler)
	@tools/build-runner.sh linux-arm64

runner-android: setup ## the runner for a phone; needs ANDROID_NDK_HOME
	@tools/build-runner.sh android-arm64

clean:           ## removes what was built and measured, keeps .venv
	@rm -rf build out artifacts .pytest_cache .mypy_cache .ruff_cache
