package main

import (
	"errors"
	"math"
	"testing"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/stretchr/testify/require"
)

func TestMemoryLimit(t *testing.T) {
	load := func(t *testing.T, text string) (*Config, []error) {
		t.Helper()
		c := defaultConfig()
		require.NoError(t, decodeStrict([]byte(text), "config", &c))
		c.complete("")
		return &c, c.problems()
	}
	t.Run("the sum of what the configuration allows", func(t *testing.T) {
		c, problems := load(t, "server: {max_request_bytes: 128MiB}\ningester: {route_cache_bytes: 32MiB}\nsinks: {none: {discard: {}}}\nstreams: {metrics: {sink: none}}")
		require.Empty(t, problems)
		require.EqualValues(t, (128+32+96)<<20, c.memoryLimit(0))
		require.EqualValues(t, (128+3*32+96)<<20, c.memoryLimit(3))
	})
	t.Run("none where an embedded database holds samples", func(t *testing.T) {
		c, _ := load(t, "sinks: {local: {tsdb: {path: data}}}\nstreams: {metrics: {sink: local}}")
		require.Zero(t, c.memoryLimit(1))
	})
	t.Run("as it is written", func(t *testing.T) {
		c, problems := load(t, "server: {memory_limit: 2GiB}\nsinks: {local: {tsdb: {path: data}}}\nstreams: {metrics: {sink: local}}")
		require.Empty(t, problems)
		require.EqualValues(t, 2<<30, c.memoryLimit(1))
	})
	t.Run("too small for its parts", func(t *testing.T) {
		_, problems := load(t, "server: {memory_limit: 512MiB}\ningester: {route_cache_bytes: 256MiB}\nsinks: {none: {discard: {}}}\nstreams: {metrics: {sink: none}}")
		require.Len(t, problems, 1)
		require.ErrorContains(t, problems[0], "server.memory_limit: 512MiB is less than the 608MiB that max_request_bytes, route_cache_bytes and the program take together")
	})
}

func TestMemoryLimitFollowsTheContainer(t *testing.T) {
	container := func(limit uint64, err error) func() (uint64, error) {
		return func() (uint64, error) { return limit, err }
	}
	for _, c := range []struct {
		configured int64
		limit      uint64
		err        error
		want       int64
	}{
		{1000, 500, nil, 450},
		{400, 500, nil, 400},
		{0, 500, nil, 450},
		{0, 0, memlimit.ErrNoLimit, 0},
		{700, 0, memlimit.ErrNoLimit, 700},
		{700, 0, errors.New("no cgroup here"), 700},
		{700, math.MaxUint64, nil, 700},
	} {
		require.Equal(t, c.want, effectiveLimit(c.configured, container(c.limit, c.err)), "%+v", c)
	}
}
