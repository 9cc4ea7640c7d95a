#!/bin/sh
# Fuzzes the runner's readers for SECONDS each (default 60), from the saved corpus. What is found stays in build/fuzz.
set -eu
cd "$(dirname "$0")/.."
seconds=${1:-60}
command -v clang++ >/dev/null 2>&1 || {
  echo 'error: cannot fuzz; found: no clang++; next step: sudo apt-get install -y clang libclang-rt-dev' >&2
  exit 21
}
tools/build-runner.sh fuzz
for target in job metadata; do
  found=build/fuzz/corpus-$target
  mkdir -p "$found"
  dictionary=
  [ "$target" = job ] && dictionary=-dict=device_runtime/fuzz/job.dict
  printf '[fuzz] %s for %s s\n' "$target" "$seconds"
  # shellcheck disable=SC2086
  build/fuzz/fuzz/fuzz-$target -max_total_time="$seconds" -max_len=8192 -artifact_prefix="build/fuzz/$target-" \
    -print_final_stats=1 $dictionary "$found" "device_runtime/fuzz/corpus/$target" > "build/fuzz/$target.log" 2>&1 || {
    grep -E '^(SUMMARY|==.*ERROR|Test unit written)|artifact_prefix' "build/fuzz/$target.log" >&2 || tail -20 "build/fuzz/$target.log" >&2
    echo "error: fuzz-$target found a fault; the whole log is in build/fuzz/$target.log" >&2
    exit 22
  }
  grep -E '^Done|stat::number_of_executed_units' "build/fuzz/$target.log" | head -1
done
