package main

import (
	_ "github.com/golang/snappy"
	_ "github.com/gogo/protobuf/proto"
	_ "github.com/grafana/dskit/server"
	_ "github.com/grafana/dskit/services"
	_ "github.com/klauspost/compress/snappy"
	_ "github.com/klauspost/compress/zstd"
	_ "github.com/prometheus/client_golang/prometheus/promhttp"
	_ "github.com/prometheus/common/config"
	_ "github.com/prometheus/exporter-toolkit/web"
	_ "github.com/prometheus/prometheus/model/relabel"
	_ "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
	_ "github.com/prometheus/prometheus/tsdb"
	_ "github.com/prometheus/prometheus/web/api/v1"
	_ "gopkg.in/yaml.v3"
	_ "google.golang.org/protobuf/encoding/protowire"
	_ "github.com/cespare/xxhash/v2"
	_ "github.com/stretchr/testify/require"
	_ "github.com/fsnotify/fsnotify"
	_ "go.opentelemetry.io/contrib/exporters/autoexport"
	_ "github.com/alecthomas/kingpin/v2"
	_ "go.uber.org/goleak"
	_ "github.com/go-kit/log"
	_ "go.uber.org/automaxprocs/maxprocs"
	_ "github.com/KimMachineGun/automemlimit/memlimit"
)
func main() {}
