#!/usr/bin/env bash
# A list of parts (SBOM) of the built program in CycloneDX 1.5, on stdout: launch/release/sbom.sh BUILD_DIR VERSION [NAME=VERSION …].
# The libraries that the program and its modules load, and those that these load, as the packages of the distribution that
# they are from; NAME=VERSION, of pkg-config, stand in where there is no dpkg. No time and no number of its own: the same build
# gives the same file.
set -euo pipefail
build=$1 version=$2
shift 2
arch=$(dpkg --print-architecture 2>/dev/null || uname -m)
distro=$(. /etc/os-release && echo "$ID-${VERSION_ID:-rolling}")
base=${distro%%-*}

packages() { # NAME VERSION of each, sorted
    local file paths owners
    if ! command -v dpkg-query >/dev/null; then
        printf '%s\n' "$@" | tr = ' ' | sort -u
        return
    fi
    paths=$(for file in "$build"/dtrain "$build"/dtrain_*.so; do
        ldd "$file" 2>/dev/null | awk '/=> \// {print $3}'
        # opened by name at run time
        [ "${file##*/}" != dtrain_mpich.so ] || ldconfig -p | awk '/libmpich\.so\.12 / {print $NF}'
    done | sort -u)
    # dpkg knows a file by one of its names, /lib being /usr/lib; what was built here has no package
    paths=$(for file in $paths; do printf '%s\n' "$file" "/usr$file" "${file#/usr}" "$(readlink -f "$file")"; done)
    # shellcheck disable=SC2086 # lists of words
    owners=$({ dpkg-query -S $paths 2>/dev/null || true; } | sed 's/: \/.*//; s/,.*//' | sort -u)
    # shellcheck disable=SC2086
    [ -z "$owners" ] || dpkg-query -W -f='${Package} ${Version}\n' $owners | sort -u
}

purl_version() { printf '%s' "$1" | sed 's/%/%25/g; s/+/%2B/g; s/:/%3A/g; s/~/%7E/g'; }

list=$(packages "$@")
[ -n "$list" ] || { echo "sbom: no library of $build/dtrain is known to dpkg or pkg-config" >&2; exit 1; }
components='' refs=''
while read -r name of; do
    if command -v dpkg-query >/dev/null; then
        purl="pkg:deb/$base/$name@$(purl_version "$of")?arch=$arch&distro=$distro"
    else
        purl="pkg:generic/$name@$(purl_version "$of")"
    fi
    components+=${components:+,}$'\n'"    {\"type\": \"library\", \"bom-ref\": \"$purl\", \"name\": \"$name\", \"version\": \"$of\", \"purl\": \"$purl\"}"
    refs+=${refs:+,}$'\n'"      \"$purl\""
done <<<"$list"
cat <<JSON
{
  "bomFormat": "CycloneDX",
  "specVersion": "1.5",
  "version": 1,
  "metadata": {
    "component": {
      "type": "application", "bom-ref": "dtrain", "name": "dtrain", "version": "$version",
      "licenses": [{"license": {"id": "Apache-2.0"}}], "purl": "pkg:generic/dtrain@$version"
    }
  },
  "components": [$components
  ],
  "dependencies": [
    {"ref": "dtrain", "dependsOn": [$refs
    ]}
  ]
}
JSON
