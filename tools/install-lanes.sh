#!/bin/sh
# Installs what `make test-all` needs beyond the README's prerequisites. Needs root or sudo, and apt.
set -eu
cd "$(dirname "$0")/.."
packages='g++-aarch64-linux-gnu qemu-user-static valgrind chromium mksh toybox postgresql maven clang libclang-rt-dev'
missing=
for package in $packages; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing="$missing $package"
done
command -v npm >/dev/null 2>&1 || missing="$missing npm"
if [ -n "$missing" ]; then
  if [ "$(id -u)" = 0 ]; then sudo=; else sudo=sudo; fi
  printf '[lanes] installing%s\n' "$missing"
  $sudo apt-get update -qq
  DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends $missing >/dev/null
fi

# axe-core checks the accessibility of the pages in Chromium. It is used by tests only.
axe=build/axe/node_modules/axe-core/axe.min.js
axe_sha256=29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c
if ! printf '%s  %s\n' "$axe_sha256" "$axe" | sha256sum --check --status 2>/dev/null; then
  printf '[lanes] installing axe-core\n'
  rm -rf build/axe
  npm install --silent --ignore-scripts --no-save --no-audit --no-fund --prefix build/axe axe-core@4.14.1
  printf '%s  %s\n' "$axe_sha256" "$axe" | sha256sum --check --quiet
fi
