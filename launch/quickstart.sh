#!/usr/bin/env bash
# One command from a fresh Debian or Ubuntu machine to a trained network: installs packages, builds,
# makes a biometric data set, packs it, trains on two ranks and prints the test metrics.
# Run it again: it resumes, or says that the run is finished.
set -euo pipefail
cd "$(dirname "$0")/.."

launch/packages.sh
echo "build: build/dtrain"
launch/build.sh build -DDTRAIN_TESTS=OFF

if [ ! -e datasets/biometric.lmdb ]; then
    build/dtrain synth biometric datasets/biometric-raw
    build/dtrain pack datasets/biometric-raw datasets/biometric.lmdb
fi

exec build/dtrain launch local -n "${NP:-2}" configs/fusion.yaml "$@"
