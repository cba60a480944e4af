#!/usr/bin/env bash
# make_apiserver.sh DIR: etcd and kube-apiserver for test_apiserver.sh, from Debian 12: the newest source of Kubernetes in
# Debian that has the server (1.20; those behind it have kubectl alone), built with Debian's Go. Installs nothing. Minutes.
set -euo pipefail
out=$(realpath -m "$1") mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
cd "$work"

mkdir -p apt/{lists,cache/archives}/partial apt/parts tree
for kind in deb deb-src; do
    echo "$kind [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror bookworm main"
done >apt/sources.list
cat >apt/apt.conf <<CONF
Dir::State::lists "$work/apt/lists";
Dir::Cache "$work/apt/cache";
Dir::Etc::sourcelist "$work/apt/sources.list";
Dir::Etc::sourceparts "$work/apt/parts";
APT::Sandbox::User "root";
CONF
export APT_CONFIG=$work/apt/apt.conf
apt-get -q update
apt-get -q download etcd-server golang-1.19-go golang-1.19-src golang-github-modern-go-reflect2-dev
for package in *.deb; do dpkg -x "$package" tree; done
apt-get -q source kubernetes

export GOROOT=$work/tree/usr/lib/go-1.19 GOPATH=$work/go GOCACHE=$work/cache GO111MODULE=off CGO_ENABLED=0
export PATH=$GOROOT/bin:$PATH
kube=k8s.io/kubernetes version=k8s.io/kubernetes/vendor/k8s.io/component-base/version
mkdir -p "$GOPATH/src/k8s.io"
mv kubernetes-1.20.*/ "$GOPATH/src/$kube"
cd "$GOPATH/src/$kube"
# its own copy of 1.0.1 walks maps as Go did before 1.18: the server crashes
rm -r vendor/github.com/modern-go/reflect2
cp -r "$work/tree/usr/share/gocode/src/github.com/modern-go/reflect2" vendor/github.com/modern-go/
# what the Makefile generates, and the source does not have: the schemas of all objects
types=$(grep -rl '+k8s:openapi-gen=' --include='*.go' --exclude='*_test.go' staging/src/k8s.io pkg cmd | xargs dirname |
    sort -u | grep -v 'code-generator/\|sample-apiserver/' | sed "s#^staging/src/#vendor/#; s#^#$kube/#" | paste -sd,)
go run $kube/vendor/k8s.io/kube-openapi/cmd/openapi-gen -i "$types" -p $kube/pkg/generated/openapi \
    -O zz_generated.openapi -h vendor/k8s.io/code-generator/hack/boilerplate.go.txt -r "$work/violations"
mkdir -p "$out"
# the program's name last: a build that was stopped is begun anew
cp "$work/tree/usr/bin/etcd" "$out/"
go build -ldflags "-s -w -X $version.gitMajor=1 -X $version.gitMinor=20 -X $version.gitVersion=v1.20.2" \
    -o "$work/kube-apiserver" $kube/cmd/kube-apiserver
mv "$work/kube-apiserver" "$out/"
