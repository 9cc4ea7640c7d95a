#!/bin/bash
# Debian trixie's adbd and the libraries it needs, by package name from the archive that this host uses, unpacked into
# the folder given. Nothing is installed, and no list of this host is changed. Ends with 3 and a reason where it cannot.
set -eu -o pipefail
target=$1
program=usr/lib/android-sdk/platform-tools/adbd
[ -x "$target/$program" ] && exit 0
fail() { echo "$1" >&2; exit 3; }
for needed in apt-get dpkg dpkg-deb; do command -v "$needed" > /dev/null || fail "no $needed: not a Debian host"; done
uri=$(apt-get indextargets --format '$(SITE)' 2> /dev/null | grep -E '/debian/?$' | sort -u | head -n 1 || true)
[ -n "$uri" ] || fail "no archive of Debian among this host's package sources"
keys=/usr/share/keyrings/debian-archive-keyring.gpg
[ -r "$keys" ] || fail "no $keys: the archive cannot be verified"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/state/lists/partial" "$work/cache/archives/partial" "$work/debs" "$work/root"
chmod -R a+rX "$work"
echo "deb [signed-by=$keys] $uri trixie main" > "$work/sources.list"
options=(-q -o "Dir::State=$work/state" -o Dir::State::status=/dev/null -o "Dir::Cache=$work/cache"
  -o "Dir::Etc::sourcelist=$work/sources.list" -o Dir::Etc::sourceparts=- -o APT::Sandbox::User=root
  -o "APT::Architecture=$(dpkg --print-architecture)" -o Acquire::Languages=none)
timeout 300 apt-get "${options[@]}" update > "$work/log" 2>&1 || fail "trixie's package list: $(tail -n 1 "$work/log")"
(cd "$work/debs" && timeout 300 apt-get "${options[@]}" download adbd android-libbase android-libboringssl android-libcutils \
  android-liblog libbrotli1 libc6 libcap2 libgcc-s1 liblz4-1 libprotobuf32t64 libstdc++6 libsystemd0 libzstd1 zlib1g) \
  > "$work/log" 2>&1 || fail "trixie's packages: $(tail -n 1 "$work/log")"
for package in "$work"/debs/*.deb; do dpkg-deb -x "$package" "$work/root"; done
[ -x "$work/root/$program" ] || fail "the package adbd has no $program"
mkdir -p "$(dirname "$target")"
rm -rf "$target"
mv "$work/root" "$target"
