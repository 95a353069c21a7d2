#!/usr/bin/env bash
# Builds the real programs that end-to-end tests and benchmarks talk to.
#
#   build.sh OUT
#
# leaves prometheus, promtool, vmagent, telemetrygen, otelcol, senders, kube-apiserver, etcd, the jars of
# Kafka, and the browser SDK and the SDK of JavaScript in the folder OUT. Each folder of Go beside
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

CGO_ENABLED=0 build telemetrygen github.com/open-telemetry/opentelemetry-collector-contrib/cmd/telemetrygen telemetrygen \
  -ldflags '-s -w'

# kafka leaves the jars of a real Apache Kafka broker in the folder kafka, and the name
# of a Java runtime beside them. Without Java, Maven or a repository of jars the test
# that needs it says so and is skipped.
kafka() {
  local to="$out/kafka" java=""
  if [ "$(cat "$to/stamp" 2>/dev/null)" = "$(sha256sum <"$here/kafka/pom.xml")" ] && [ -x "$(cat "$to/java")" ]; then
    echo "peers: kafka is up to date"
    return
  fi
  if ! command -v java >/dev/null || ! command -v mvn >/dev/null; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
      { apt-get update -q && apt-get install -q -y --no-install-recommends maven openjdk-17-jre-headless; } >"$out/kafka.log" 2>&1 || true
    fi
  fi
  java=$(command -v java || true)
  if [ -z "$java" ] || ! command -v mvn >/dev/null; then
    echo "peers: no kafka: it needs java and mvn"
    return
  fi
  echo "peers: fetching kafka"
  rm -rf "$to"
  if ! mvn -q -B -f "$here/kafka/pom.xml" dependency:copy-dependencies -DoutputDirectory="$to" >"$out/kafka.log" 2>&1; then
    echo "peers: no kafka: its jars could not be fetched, see $out/kafka.log"
    rm -rf "$to"
    return
  fi
  readlink -f "$java" >"$to/java"
  sha256sum <"$here/kafka/pom.xml" >"$to/stamp"
}
kafka

# A program of our own around the client libraries that applications use.
CGO_ENABLED=0 build senders github.com/elastic/go-elasticsearch/v8 senders -ldflags '-s -w'

# What comes from npm: the browser SDK with what drives Chromium, and the OpenTelemetry
# SDK of JavaScript. Where there is no npm, or nothing to get them from, the tests that
# need them say so and are skipped.
packages() {
  local name=$1 dir="$out/$1" pin
  pin=$(cat "$here/$name/"* "$here/build.sh" | sha256sum)
  if [ "$(cat "$dir/stamp" 2>/dev/null)" = "$pin" ]; then
    echo "peers: $name is up to date"
    return
  fi
  if ! command -v npm >/dev/null; then
    echo "peers: no npm on this machine, so $name is left out"
    return
  fi
  mkdir -p "$dir"
  cp "$here/$name/"{package.json,package-lock.json,*.mjs} "$dir/"
  if (cd "$dir" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error); then
    echo "$pin" >"$dir/stamp"
  else
    echo "peers: npm could not install $name, so it is left out"
  fi
}
packages browser
packages javascript

# The API server and its store, which the chart is installed into. Kubernetes
# shows its version where charts look at it.
CGO_ENABLED=0 build kubernetes k8s.io/kubernetes 'kube-apiserver server' \
  -ldflags '-s -w -X k8s.io/component-base/version.gitVersion=VERSION -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=34'
ln -sf server "$out/etcd" # Go names the program after its folder

# The Collector with the parts that tests need; its main package is ours.
CGO_ENABLED=0 build otelcol go.opentelemetry.io/collector/otelcol otelcol -ldflags '-s -w'
