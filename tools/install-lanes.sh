#!/bin/sh
# Installs what `make test-all` needs beyond the README's prerequisites. Needs root or sudo, and apt.
set -eu
packages='g++-aarch64-linux-gnu qemu-user-static valgrind chromium mksh toybox postgresql maven clang libclang-rt-dev'
missing=
for package in $packages; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing="$missing $package"
done
[ -n "$missing" ] || exit 0
if [ "$(id -u)" = 0 ]; then sudo=; else sudo=sudo; fi
printf '[lanes] installing%s\n' "$missing"
$sudo apt-get update -qq
DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends $missing >/dev/null
