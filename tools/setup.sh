#!/bin/sh
# Makes .venv with the pinned packages of requirements.lock, and unpacks the C++ test headers. Runs again only if they change.
set -eu
cd "$(dirname "$0")/.."

say() { printf '[setup] %s\n' "$*"; }

python=
for candidate in ${SNAPGATE_PYTHON:-} python3 python3.14 python3.13 python3.12 python3.11; do
  if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then python=$candidate; break; fi
done

missing=
[ -n "$python" ] || missing="$missing python3"
if [ -n "$python" ] && ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then missing="$missing python3-venv"; fi
command -v gcc >/dev/null 2>&1 || missing="$missing gcc"
command -v g++ >/dev/null 2>&1 || missing="$missing g++"
command -v git >/dev/null 2>&1 || missing="$missing git"
if [ -n "$missing" ]; then
  printf 'error: missing system packages; found: none of%s; expected: Python 3.11 or newer with venv, gcc, g++, git; ' "$missing" >&2
  printf 'next step: sudo apt-get install -y%s\n' "$missing" >&2
  exit 21
fi

wanted=$(cat requirements.lock device_runtime/catch2.lock pyproject.toml tools/setup.sh | sha256sum | cut -c1-16)-$("$python" -c 'import sys; print(sys.version_info[:3], sys.executable)' | tr -d ' ')
if [ "$(cat .venv/.snapgate-setup 2>/dev/null || true)" = "$wanted" ]; then exit 0; fi

version=$("$python" -V)
if [ "$(.venv/bin/python -V 2>/dev/null || true)" != "$version" ]; then
  say "virtual environment for $version in .venv"
  "$python" -m venv --clear .venv
fi
say "installing the pinned packages of requirements.lock (about 450 MB; a minute or two)"
.venv/bin/python -m pip install --disable-pip-version-check --no-compile --progress-bar off --require-hashes -r requirements.lock |
  grep --line-buffered -E '^(Downloading|Installing|Successfully)|MB' | cut -c1-110 || true
.venv/bin/python -c 'import numpy, adbutils, setuptools' || { say "the packages did not install; the lines above say why"; exit 21; }
.venv/bin/python -m pip install --disable-pip-version-check -q --no-deps --no-build-isolation -e .
say "C++ headers (Catch2, nlohmann/json)"
rm -rf build/cxx && mkdir -p build/cxx/wheels
.venv/bin/python -m pip download --disable-pip-version-check -q --no-deps --python-version 3.12 --only-binary=:all: \
  --require-hashes -r device_runtime/catch2.lock -d build/cxx/wheels
.venv/bin/python -m zipfile -e build/cxx/wheels/*.whl build/cxx
printf '%s' "$wanted" > .venv/.snapgate-setup
say "ready"
