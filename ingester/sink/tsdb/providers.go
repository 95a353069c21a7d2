package tsdb

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/scrape"
	"github.com/prometheus/prometheus/storage"
	promtsdb "github.com/prometheus/prometheus/tsdb"
)

// openDatabase gives the API the database that is open. Its methods run inside
// guard, which holds the lock that keeps it so.
type openDatabase struct{ s *Sink }

func (d openDatabase) Querier(mint, maxt int64) (storage.Querier, error) {
	return d.s.db.Querier(mint, maxt)
}

func (d openDatabase) ChunkQuerier(mint, maxt int64) (storage.ChunkQuerier, error) {
	return d.s.db.ChunkQuerier(mint, maxt)
}

func (d openDatabase) ExemplarQuerier(ctx context.Context) (storage.ExemplarQuerier, error) {
	return d.s.db.ExemplarQuerier(ctx)
}

func (d openDatabase) Stats(label string, limit int) (*promtsdb.Stats, error) {
	return d.s.db.Head().Stats(label, limit), nil
}

func (d openDatabase) BlockMetas() ([]promtsdb.BlockMeta, error) { return d.s.db.BlockMetas(), nil }

func (d openDatabase) WALReplayStatus() (promtsdb.WALReplayStatus, error) {
	return d.s.stats.Head.WALReplayStatus.GetWALReplayStatus(), nil
}

// Gather returns the database's own metrics.
func (d openDatabase) Gather() ([]*dto.MetricFamily, error) {
	r := d.s.database.current.Load()
	if r == nil {
		return nil, errNotOpen
	}
	return r.Gather()
}

var errNoAdmin = errors.New("the embedded database offers no admin endpoints")

func (openDatabase) CleanTombstones() error { return errNoAdmin }

func (openDatabase) Delete(context.Context, int64, int64, ...*labels.Matcher) error {
	return errNoAdmin
}

func (openDatabase) Snapshot(string, bool) error { return errNoAdmin }

// nothing is what an ingester scrapes, evaluates and alerts on.
type nothing struct{}

func (nothing) ScrapePools() []string                       { return []string{} }
func (nothing) TargetsActive() map[string][]*scrape.Target  { return nil }
func (nothing) TargetsDropped() map[string][]*scrape.Target { return nil }
func (nothing) TargetsDroppedCounts() map[string]int        { return map[string]int{} }
func (nothing) Alertmanagers() []*url.URL                   { return nil }
func (nothing) DroppedAlertmanagers() []*url.URL            { return nil }
func (nothing) RuleGroups() []*rules.Group                  { return nil }
func (nothing) AlertingRules() []*rules.AlertingRule        { return nil }
func (nothing) ScrapePoolConfig(n string) (*config.ScrapeConfig, error) {
	return nil, fmt.Errorf("scrape pool %q not found", n)
}

// querySlots bounds how many queries run at once; it implements
// promql.QueryTracker.
type querySlots chan struct{}

func (q querySlots) GetMaxConcurrent() int { return cap(q) }

func (q querySlots) Insert(ctx context.Context, _ string) (int, error) {
	select {
	case q <- struct{}{}:
		return 0, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

func (q querySlots) Delete(int) { <-q }

func (querySlots) Close() error { return nil }

var _ prometheus.Gatherer = openDatabase{}
