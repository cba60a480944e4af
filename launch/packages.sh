#!/usr/bin/env bash
# Installs the Debian/Ubuntu packages that dtrain is built from. As root or with sudo; says what it does;
# does nothing when all are there. `launch/packages.sh --tests` adds what the tests need; `--list` prints the names.
set -euo pipefail

packages=(build-essential file cmake ninja-build pkg-config openmpi-bin libopenmpi-dev libdnnl-dev libyaml-dev
          liblmdb-dev libjpeg-dev libspng-dev libwebp-dev libtiff-dev libsndfile1-dev libxxhash-dev libjansson-dev
          libsqlite3-dev libmpg123-dev libcmocka-dev zlib1g-dev libzstd-dev libsnappy-dev libminizip-dev
          libprotobuf-c-dev protobuf-c-compiler libcurl4-openssl-dev)
if [ "${1:-}" = "--tests" ]; then
    packages+=(python3 python3-venv python3-yaml sox slurm-wlm munge openssh-server openssh-client iproute2 procps
               buildah debootstrap mmdebstrap mpich libmpich-dev shellcheck yamllint prometheus curl openssl ccache chromium lintian)
fi
if [ "${1:-}" = "--list" ]; then
    printf '%s\n' "${packages[@]}"
    exit 0
fi

installed() { dpkg-query -W -f='${Status}' "$1" 2>/dev/null | grep 'install ok installed' >/dev/null; }
missing=()
for package in "${packages[@]}"; do
    # libdnnl-dev is named libonednn-dev in newer releases
    installed "$package" || { [ "$package" = libdnnl-dev ] && installed libonednn-dev; } || missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then
    echo "packages: all ${#packages[@]} are installed"
    exit 0
fi

sudo=()
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || { echo "packages: missing ${missing[*]}; run this as root or install sudo" >&2; exit 2; }
    sudo=(sudo)
fi
echo "packages: installing ${missing[*]}"
"${sudo[@]}" apt-get update -qq
# whichever name the release has
for i in "${!missing[@]}"; do
    if [ "${missing[$i]}" = libdnnl-dev ] && ! apt-cache show libdnnl-dev >/dev/null 2>&1; then
        missing[i]=libonednn-dev
    fi
done
"${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
