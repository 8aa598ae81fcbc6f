#!/bin/sh
# Builds the guest's init for every architecture, as the files that the package embeds. The same sources and the same Go give
# the same bytes.
set -eu
cd "$(dirname "$0")"
out=${1:-.}
for arch in amd64 arm64 riscv64; do
	GOOS=linux GOARCH=$arch GOAMD64=v1 CGO_ENABLED=0 GOFLAGS= go build -trimpath -buildvcs=false -ldflags '-s -w -buildid=' -o "$out/guestinit_$arch" ./guestinit
	gzip -9 -n -f "$out/guestinit_$arch"
done
