package main

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/grafana/dskit/services"

	"github.com/spillway-telemetry/spillway/cmd/spillway/page"
	"github.com/spillway-telemetry/spillway/ingester"
)

// refusal is a reload that was not put in force, as the page shows it.
type refusal struct {
	Time     time.Time `json:"time"`
	Problems []string  `json:"problems"`
}

// refusedNow is a refusal with a line per problem.
func refusedNow(err error) *refusal {
	return &refusal{time.Now(), strings.Split(strings.TrimSpace(err.Error()), "\n")}
}

// rateControlStatus is what /api/v1/ratecontrol answers: the classes, and what
// else tells them apart from those of another process.
type rateControlStatus struct {
	ingester.RateControl
	Instance  string `json:"instance"`
	Version   string `json:"version"`
	Ingesters int    `json:"ingesters"` // N
	// Now is the server's clock, InForce when it put the configuration in force:
	// drops from before that say nothing about it.
	Now     int64 `json:"now_unix_ms"`
	InForce int64 `json:"in_force_since_unix_ms"`
	// Refused is the last change of the configuration, if it was refused and
	// the one before is still in force.
	Refused *refusal `json:"refused,omitempty"`
}

func (p *process) rateControl(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, rateControlStatus{
		RateControl: p.ingester.RateControl(), Instance: instance(p.server.HTTPListenAddr()), Version: version,
		Ingesters: p.config.Ingester.ReplicaCount, Now: time.Now().UnixMilli(), InForce: p.reloader.inForce.Load(), Refused: p.reloader.refused.Load(),
	})
}

// mountPage serves the page to browsers, and to others a list of the addresses.
func (p *process) mountPage() {
	files := page.Handler()
	p.server.HTTP.PathPrefix(page.Prefix).Methods(http.MethodGet, http.MethodHead).Handler(files)
	p.server.HTTP.Path("/").Methods(http.MethodGet, http.MethodHead).HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if page.WantsPage(r) {
			files.ServeHTTP(w, r)
			return
		}
		index(w, r)
	})
}

// historyService keeps the page's last 15 minutes.
func (p *process) historyService() services.Service {
	return services.NewTimerService(page.Interval, nil, func(context.Context) error {
		p.history.Sample(time.Now(), p.ingester.RateControl())
		return nil
	}, nil)
}
