// Command bench measures Spillway beside its peers: the bars of the design, each
// in one run with the program that it is compared with, on the same requests.
//
//	this program --requests--> peer      --remote write--> this program (sink)
//	             --requests--> Spillway  --remote write-->
//
// Peer and Spillway run in turn, each fresh, on loopback. What decides is items
// per CPU-second: the user and system time that the receiver's process takes from
// the first measured request until all has arrived at the sink. Time on the clock
// depends on what else the machine does, a ratio of CPU times within one run much
// less so.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
)

// options is what is measured, and how much of it.
type options struct {
	programs    programs
	series      []int
	perRequest  int
	connections int
	rounds      int
	items       int
	storedItems int
	benchTime   string
	only        *regexp.Regexp
	inprocess   bool
	growth      bool
	profile     string
	folder      string
	keep        bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	o, err := parse()
	if err == nil {
		err = o.run(ctx)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func parse() (*options, error) {
	o := &options{}
	var series, only string
	flag.StringVar(&o.programs.spillway, "spillway", "bin/spillway", "the program under test")
	flag.StringVar(&o.programs.peers, "peers", ".cache/peers", "the folder with vmagent and prometheus")
	flag.StringVar(&series, "series", "100000,1000000", "active series, one run of every row for each")
	flag.IntVar(&o.perRequest, "series-per-request", 2000, "series in a request")
	flag.IntVar(&o.connections, "connections", 4, "connections to the receiver")
	flag.IntVar(&o.rounds, "rounds", 3, "pairs of runs for each row")
	flag.IntVar(&o.items, "items", 6_000_000, "items measured in a run")
	flag.IntVar(&o.storedItems, "stored-items", 1_000_000, "the same where a TSDB stores them")
	flag.StringVar(&o.benchTime, "benchtime", "500ms", "time for each Go benchmark")
	flag.StringVar(&only, "rows", ".", "only rows whose title matches")
	flag.BoolVar(&o.inprocess, "inprocess", true, "run the Go benchmarks of the bars too")
	flag.BoolVar(&o.growth, "growth", false, "measure how cost grows instead of the bars")
	flag.StringVar(&o.profile, "profile", "", "record profiles of the first row into this folder instead")
	flag.StringVar(&o.folder, "out", "testdata/bench", "the folder of README.md and the plots")
	flag.BoolVar(&o.keep, "keep", false, "write what was measured into README.md and the plots")
	flag.Parse()
	var err error
	if o.only, err = regexp.Compile(only); err != nil {
		return nil, fmt.Errorf("-rows: %w", err)
	}
	for field := range strings.SplitSeq(series, ",") {
		n, err := strconv.Atoi(field)
		if err != nil || n < o.perRequest {
			return nil, fmt.Errorf("-series: %q is not a number of series that fills a request", field)
		}
		o.series = append(o.series, n)
	}
	if err := o.programs.find(o.profile == "" && !o.growth); err != nil {
		return nil, err
	}
	if o.rounds < 1 || o.connections < 1 || o.items < o.perRequest {
		return nil, errors.New("-rounds, -connections and -items: too small to measure anything")
	}
	return o, nil
}

// run starts the sink, makes a folder for the receivers' files, and removes both
// at the end.
func (o *options) run(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "spillway-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s, err := startSink()
	if err != nil {
		return err
	}
	defer s.server.Close()
	b := &bench{sink: s, dir: dir, say: func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }}
	switch {
	case o.profile != "":
		rows := selected(o.rows(), o.only)
		if len(rows) == 0 {
			return errors.New("-rows: no row matches")
		}
		return b.profiles(ctx, rows[0], o)
	case o.growth:
		return o.runGrowth(ctx, b)
	}
	return o.runBars(ctx, b)
}

// runBars measures every bar and prints the tables. A row that cannot be measured
// does not keep the others from it.
func (o *options) runBars(ctx context.Context, b *bench) error {
	var results []*result
	for _, r := range selected(o.rows(), o.only) {
		results = append(results, b.run(ctx, r, o))
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	var checks []check
	if o.inprocess {
		b.say("the benchmarks inside one process")
		checks = o.inProcess(ctx)
	}
	text := o.barTable(results, checks) + "\n" + figureTable(results)
	fmt.Print(text)
	if !o.keep {
		return nil
	}
	return writeSection(filepath.Join(o.folder, "README.md"), "bars", o.circumstances()+"\n"+text)
}
