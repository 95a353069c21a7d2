package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// profiled runs ours once more, takes its CPU profile while requests are sent,
// and says in words where the time goes. It is a run of its own, as a profile
// costs time too.
func (b *bench) profiled(ctx context.Context, r *row, load *requests, o *options, n int) (words string, err error) {
	err = b.with(ctx, r.ours, load, o.connections, func(run *running) error {
		file := filepath.Join(b.dir, "cpu.pprof")
		if err := b.record(ctx, run, load, n, file); err != nil {
			return err
		}
		words, err = whereTimeGoes(ctx, file)
		return err
	})
	return words, err
}

// record sends n requests and writes the CPU profile of the first three seconds
// of it: idle time, if the requests take less, does not show in a CPU profile.
func (b *bench) record(ctx context.Context, run *running, load *requests, n int, file string) error {
	fetched := make(chan error, 1)
	go func() { fetched <- fetch(ctx, "http://"+run.address+"/debug/pprof/profile?seconds=3", file) }()
	_, err := b.send(ctx, run, load, n)
	if fetchErr := <-fetched; err == nil {
		err = fetchErr
	}
	return err
}

// fetch writes what an address answers to a file.
func fetch(ctx context.Context, url, file string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answered %d: %.200s", url, resp.StatusCode, body)
	}
	return os.WriteFile(file, body, 0o644)
}

// kinds put functions into words. The first that matches counts, so a package
// stands before those whose names contain its own.
var kinds = []struct {
	words string
	names *regexp.Regexp
}{
	{"system calls", regexp.MustCompile(`syscall|runtime\.(futex|epoll|usleep|read|write1|madvise)|vdso`)},
	{"snappy decode", regexp.MustCompile(`(snappy|s2)\.(.*[dD]ecod|load)`)},
	{"snappy encode", regexp.MustCompile(`(snappy|s2)\.`)},
	{"copying memory", regexp.MustCompile(`runtime\.(memmove|memclr)`)},
	{"comparing keys", regexp.MustCompile(`memeq|runtime\.cmp|bytes\.Equal`)},
	{"hashing and maps", regexp.MustCompile(`hash|runtime\.map|internal/runtime/maps`)},
	{"the TSDB library", regexp.MustCompile(`prometheus/(tsdb|storage|util)`)},
	{"building labels and relabelling, for series not remembered", regexp.MustCompile(`spillway/relabel|model/(relabel|labels)|regexp|labelSet|nextLabel|utf8|protowire|^cmpbody`)},
	{"walking the request", regexp.MustCompile(`spillway/ingester/receive|^encoding/binary`)},
	{"the remote write sink", regexp.MustCompile(`spillway/ingester/sink/remotewrite`)},
	{"the TSDB sink", regexp.MustCompile(`spillway/ingester/sink/tsdb`)},
	{"tokens", regexp.MustCompile(`spillway/ratecontrol`)},
	{"slots", regexp.MustCompile(`spillway/governor`)},
	{"routes and settling", regexp.MustCompile(`spillway/ingester|spillway/policy`)},
	{"HTTP", regexp.MustCompile(`net/http|net/textproto|net/url|bufio|^net\.|internal/poll|gorilla|dskit|mime|^io\.`)},
	{"garbage collection, allocation and scheduling", regexp.MustCompile(`^(runtime|sync|internal/runtime|internal/sync)\b`)},
}

// whereTimeGoes reads a CPU profile through `go tool pprof` and returns the kinds
// of functions that take the most time themselves.
func whereTimeGoes(ctx context.Context, file string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "tool", "pprof", "-top", "-nodecount=1000000", "-nodefraction=0", "-edgefraction=0", file)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go tool pprof: %w: %s", err, stderr.String())
	}
	shares := sharesOf(out)
	words := make([]string, 0, len(shares))
	for kind := range shares {
		words = append(words, kind)
	}
	slices.SortFunc(words, func(a, b string) int { return cmp.Or(cmp.Compare(shares[b], shares[a]), cmp.Compare(a, b)) })
	for i, w := range words {
		words[i] = fmt.Sprintf("%s %.0f%%", w, shares[w])
	}
	return strings.Join(words[:min(5, len(words))], ", "), nil
}

// sharesOf adds up, by kind, the percentages of a listing whose lines are
//
//	flat  flat%  sum%  cum  cum%  function
func sharesOf(listing []byte) map[string]float64 {
	shares := make(map[string]float64)
	lines := bufio.NewScanner(bytes.NewReader(listing))
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) < 6 || !strings.HasSuffix(f[1], "%") {
			continue
		}
		percent, err := strconv.ParseFloat(strings.TrimSuffix(f[1], "%"), 64)
		if err == nil {
			shares[kindOf(strings.Join(f[5:], " "))] += percent
		}
	}
	return shares
}

func kindOf(function string) string {
	for _, k := range kinds {
		if k.names.MatchString(function) {
			return k.words
		}
	}
	return "other"
}

// profiles records the CPU and allocation profiles of Spillway under the load of
// a row into a folder.
func (b *bench) profiles(ctx context.Context, r *row, o *options) error {
	if err := os.MkdirAll(o.profile, 0o755); err != nil {
		return err
	}
	_, load, err := r.prepare(o)
	if err != nil {
		return err
	}
	return b.with(ctx, r.ours, load, o.connections, func(run *running) error {
		cpu, allocs := filepath.Join(o.profile, "cpu.pprof"), filepath.Join(o.profile, "allocs.pprof")
		if err := b.record(ctx, run, load, max(1, r.items/o.perRequest), cpu); err != nil {
			return err
		}
		if err := fetch(ctx, "http://"+run.address+"/debug/pprof/allocs", allocs); err != nil {
			return err
		}
		words, err := whereTimeGoes(ctx, cpu)
		if err == nil {
			b.say("%s: %s\nlook closer with `go tool pprof -http=: FILE` at %s and %s", r.title(), words, cpu, allocs)
		}
		return err
	})
}
