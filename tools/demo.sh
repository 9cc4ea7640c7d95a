#!/bin/sh
# The main job, on virtual phones: prepare the bundled model for Snapdragon 8 Gen 3, run the suites, leave out/report.html.
set -eu
cd "$(dirname "$0")/.."
started=$(date +%s)
say() { printf '[demo %3ds] %s\n' "$(($(date +%s) - started))" "$*"; }

say 'building the runner and preparing the model for gen3 (fp16, then w8a16), side by side'
tools/build-runner.sh host snapgate-runner &
builder=$!
status=0
for precision in fp16 w8a16; do
  .venv/bin/snapgate prepare models/tiny-llama --soc gen3 --precision "$precision" --context 512 --prefill 64 || status=$?
  [ "$status" = 0 ] || break
done
wait "$builder" || status=$?
[ "$status" = 0 ] || exit "$status"

say 'running the suites on virtual phones'
.venv/bin/python -m pytest suites -m gen3 -n 2 --junitxml out/junit.xml "$@" || status=$?
say "done; the report is $PWD/out/report.html"
exit "$status"
