#!/usr/bin/env bash
# Installs the Debian or Ubuntu packages that dtrain is built from. As root or with sudo; says what it does; does nothing
# when all are there. `launch/packages.sh --tests` adds what the tests need. `--list` prints the names for apt, dnf (Rocky
# Linux 9 with CRB and EPEL) and conda-forge, `--list apt` a line for each: packages.csv has them.
set -euo pipefail
case $* in
'' | --tests | --list | '--list '*) ;;
*)
    echo "usage: launch/packages.sh [--tests | --list [apt | dnf | conda-forge]]" >&2
    [ "$*" = --help ] || exit 2
    exit ;;
esac
table=$(dirname "$0")/packages.csv

names() { # of apt, dnf or conda-forge
    awk -F, -v manager="$1" '/^#/ { next }
        !column { for (i = 2; i <= NF; i++) if ($i == manager) column = i; if (!column) exit 1; next }
        { n = split($column, words, " "); if (!n) lacks = lacks (lacks ? ", " : "") $1
          for (i = 1; i <= n; i++) if (!seen[words[i]]++) print words[i] }
        END { if (lacks) print "packages: " manager " does not have " lacks ": build from source (docs/clusters.md, Build without root)" >"/dev/stderr" }' "$table" ||
        { echo "packages: no '$1': apt, dnf or conda-forge" >&2; exit 2; }
}
if [ "${1:-}" = "--list" ]; then
    if [ $# -gt 1 ]; then
        names "${*:2}"
        exit
    fi
    for manager in apt dnf conda-forge; do
        list=$(names $manager)
        echo "$manager:" $list
    done
    exit
fi

mapfile -t packages < <(names apt)
if [ "${1:-}" = "--tests" ]; then
    packages+=(python3 python3-venv python3-yaml sox slurm-wlm munge openssh-server openssh-client libnss-extrausers iproute2 procps
               buildah debootstrap mmdebstrap mpich libmpich-dev shellcheck yamllint prometheus curl openssl ccache chromium lintian)
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

command -v apt-get >/dev/null || { echo "packages: no apt-get here; 'launch/packages.sh --list' prints the names for dnf and conda-forge" >&2; exit 2; }
sudo=()
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null ||
        { echo "packages: missing ${missing[*]}; run this as root or install sudo, or take conda-forge's ('launch/packages.sh --list conda-forge')" >&2; exit 2; }
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
