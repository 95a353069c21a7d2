#!/usr/bin/env bash
# Builds the real programs that end-to-end tests and benchmarks talk to.
#
#   build.sh OUT [otelcol]
#
# leaves prometheus, promtool and vmagent in the folder OUT, and the OpenTelemetry
# Collector where it is asked for, since that takes as long as all of the others. Each folder beside
# this script is a Go module that pins one peer with all that it is made of, so
# that a peer's dependencies never touch those of the product. A peer is built
# only when it is missing or when its pin, its flags or the Go version changed.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mkdir -p "${1:?name the folder for the programs}"
out=$(cd "$1" && pwd)
# A go.work file above this folder must not change what the pins say.
export GOWORK=off

# fingerprint MODULE prints what decides whether the programs are up to date.
fingerprint() {
  cat "$here/$1/"* "$here/build.sh" <(go version) | sha256sum
}

# build MODULE PATH 'PROGRAM...' FLAGS... builds the tools that MODULE's go.mod
# names. PATH is the module that carries them; VERSION in FLAGS stands for its
# version.
build() {
  local name=$1 path=$2 programs=$3 stamp version started=$SECONDS fresh=yes p
  shift 3
  stamp="$out/$name.stamp"
  [ "$(cat "$stamp" 2>/dev/null)" = "$(fingerprint "$name")" ] || fresh=no
  for p in $programs; do
    [ -x "$out/$p" ] || fresh=no
  done
  if [ $fresh = yes ]; then
    echo "peers: $name is up to date"
    return
  fi
  rm -f "$stamp"
  cd "$here/$name"
  version=$(go list -m -f '{{.Version}}' "$path")
  echo "peers: building $name $version"
  go build -trimpath -buildvcs=false "${@//VERSION/$version}" -o "$out/" tool
  fingerprint "$name" >"$stamp"
  echo "peers: $name took $((SECONDS - started)) s"
}

# Prometheus is built as its releases are, without cgo, but for the service
# discoveries of clouds: no test uses them and they are a sixth of its packages.
# Much of what remains is compiled for the product already, because its module
# pins the same versions as the product's.
CGO_ENABLED=0 build prometheus github.com/prometheus/prometheus 'prometheus promtool' \
  -tags remove_all_sd \
  -ldflags '-s -w -X github.com/prometheus/common/version.Version=VERSION'

# vmagent's releases for Linux are built with cgo, which gives it the faster
# zstd: the bars of the benchmarks mean that one.
CGO_ENABLED=1 build vmagent github.com/VictoriaMetrics/VictoriaMetrics vmagent \
  -ldflags '-s -w -X github.com/VictoriaMetrics/VictoriaMetrics/lib/buildinfo.Version=vmagent-VERSION'

# The Collector with the parts that tests need; its main package is ours.
if [ "${2:-}" = otelcol ]; then
  CGO_ENABLED=0 build otelcol go.opentelemetry.io/collector/otelcol otelcol -ldflags '-s -w'
fi
