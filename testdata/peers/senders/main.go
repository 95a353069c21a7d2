// Command senders sends logs and events with the libraries that applications use, for
// end-to-end tests: what is on the wire is theirs, not ours.
//
//	senders KIND URL N KEY
//
// sends N items and fails unless the library says that all of them were taken. The i-th
// item says "line I" and happened I seconds after 2023-11-14T22:13:20Z.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/elastic/go-elasticsearch/v8"
	"github.com/elastic/go-elasticsearch/v8/esutil"
	"github.com/grafana/loki-client-go/loki"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "senders:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 4 {
		return errors.New("usage: senders KIND URL N KEY")
	}
	n, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	kinds := map[string]func(url string, n int, key string) error{
		"elasticsearch": sendElasticsearch, "loki": sendLoki, "kubernetes": sendKubernetes,
	}
	send, ok := kinds[args[0]]
	if !ok {
		return fmt.Errorf("unknown kind %q", args[0])
	}
	return send(args[1], n, args[3])
}

func at(i int) time.Time { return time.Unix(1_700_000_000+int64(i), 0).UTC() }

func text(i int) string { return fmt.Sprint("line ", i) }

// sendElasticsearch uses the official client, which asks what the server is, and its
// bulk indexer, which reads the item of each document.
func sendElasticsearch(address string, n int, key string) error {
	client, err := elasticsearch.NewClient(elasticsearch.Config{Addresses: []string{address}, APIKey: key, CompressRequestBody: true})
	if err != nil {
		return err
	}
	info, err := client.Info()
	if err != nil {
		return err
	}
	if info.IsError() {
		return errors.New(info.String())
	}
	var stored, failed atomic.Int64
	indexer, err := esutil.NewBulkIndexer(esutil.BulkIndexerConfig{Client: client, Index: "logs-e2e", NumWorkers: 3, FlushBytes: 4 << 10})
	if err != nil {
		return err
	}
	for i := range n {
		doc, err := json.Marshal(map[string]any{"@timestamp": at(i), "message": text(i), "log": map[string]any{"level": "error"},
			"host": map[string]any{"name": "h1"}, "n": i})
		if err != nil {
			return err
		}
		err = indexer.Add(context.Background(), esutil.BulkIndexerItem{
			Action: "create", DocumentID: strconv.Itoa(i), Body: bytes.NewReader(doc),
			OnSuccess: func(context.Context, esutil.BulkIndexerItem, esutil.BulkIndexerResponseItem) { stored.Add(1) },
			OnFailure: func(_ context.Context, _ esutil.BulkIndexerItem, r esutil.BulkIndexerResponseItem, err error) {
				failed.Add(1)
				fmt.Fprintln(os.Stderr, r.Status, r.Error.Reason, err)
			},
		})
		if err != nil {
			return err
		}
	}
	if err := indexer.Close(context.Background()); err != nil {
		return err
	}
	if stored.Load() != int64(n) || failed.Load() != 0 {
		return fmt.Errorf("%d stored and %d failed of %d", stored.Load(), failed.Load(), n)
	}
	return nil
}

// sendLoki uses the client of Promtail. It says nothing about what was not taken, but
// in its metrics and on standard error.
func sendLoki(address string, n int, key string) error {
	config, err := loki.NewDefaultConfig(address + "/loki/api/v1/push")
	if err != nil {
		return err
	}
	if key != "" {
		u, err := url.Parse(address)
		if err != nil {
			return err
		}
		u.User = url.UserPassword("anybody", key)
		if config, err = loki.NewDefaultConfig(u.String() + "/loki/api/v1/push"); err != nil {
			return err
		}
	}
	client, err := loki.New(config)
	if err != nil {
		return err
	}
	for i := range n {
		labels := model.LabelSet{"app": "e2e", "level": model.LabelValue([]string{"info", "warn"}[i%2])}
		if err := client.Handle(labels, at(i), text(i)); err != nil {
			return err
		}
	}
	client.Stop()
	return nil
}

// sendKubernetes posts Event objects of both API groups, as Kubernetes' own types
// write them.
func sendKubernetes(address string, n int, key string) error {
	var events []any
	for i := range n {
		meta := metav1.ObjectMeta{Name: fmt.Sprint("e", i), Namespace: "shop", UID: "u"}
		pod := corev1.ObjectReference{Kind: "Pod", Name: "web-0", Namespace: "shop"}
		if i%2 == 0 {
			events = append(events, corev1.Event{
				TypeMeta: metav1.TypeMeta{Kind: "Event", APIVersion: "v1"}, ObjectMeta: meta, InvolvedObject: pod, Reason: "Failed",
				Message: text(i), Type: corev1.EventTypeWarning, FirstTimestamp: metav1.NewTime(at(i).Add(-time.Hour)), LastTimestamp: metav1.NewTime(at(i)),
				Count: 3, Source: corev1.EventSource{Component: "kubelet", Host: "node-1"},
			})
			continue
		}
		events = append(events, eventsv1.Event{
			TypeMeta: metav1.TypeMeta{Kind: "Event", APIVersion: "events.k8s.io/v1"}, ObjectMeta: meta, Regarding: pod, Reason: "Failed",
			Note: text(i), Type: corev1.EventTypeWarning, EventTime: metav1.NewMicroTime(at(i)), ReportingController: "kubelet", ReportingInstance: "node-1",
		})
	}
	body, err := json.Marshal(events)
	if err != nil {
		return err
	}
	req, err := http.NewRequest(http.MethodPost, address+"/ingester/events", bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Kf-Api-Key", key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusAccepted {
		return errors.New(resp.Status)
	}
	return nil
}
