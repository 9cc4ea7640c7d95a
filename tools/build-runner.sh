#!/bin/sh
# Builds one CMake preset of device_runtime: host, host-asan, linux-arm64 or android-arm64; or one target of it.
set -eu
cd "$(dirname "$0")/.."
preset=${1:?usage: tools/build-runner.sh PRESET [TARGET]}
target=${2:-all}
case $preset in
  android-arm64)
    [ -n "${ANDROID_NDK_HOME:-}" ] || {
      echo 'error: cannot build for Android; found: ANDROID_NDK_HOME is not set; expected: the folder of an NDK (r26 or newer); next step: install the NDK and set it' >&2
      exit 21
    } ;;
  linux-arm64)
    command -v aarch64-linux-gnu-g++ >/dev/null 2>&1 || {
      echo 'error: cannot cross compile; found: no aarch64-linux-gnu-g++; next step: sudo apt-get install -y g++-aarch64-linux-gnu' >&2
      exit 21
    } ;;
esac
PATH="$PWD/.venv/bin:$PATH"
export PATH
json=$(python -c 'import nlohmann_json, pathlib; print(pathlib.Path(nlohmann_json.__file__).parent / "include")')
log=build/$preset.log
mkdir -p build
printf '[runner] building preset %s\n' "$preset"
if ! { cmake --preset "$preset" -S device_runtime -DNLOHMANN_JSON_INCLUDE_DIR="$json" \
         -DCATCH2_INCLUDE_DIR="$PWD/build/cxx/catch2/install/include" &&
       cmake --build "build/$preset" --target "$target" --parallel 2 &&
       { [ "$preset" != host ] || { cmake -S device_runtime/compose -B build/host/compose &&
         cmake --build build/host/compose; }; }; } > "$log" 2>&1; then
  tail -40 "$log" >&2
  echo "error: the runner did not build; the whole log is in $log" >&2
  exit 22
fi
printf '[runner] built in build/%s\n' "$preset"
