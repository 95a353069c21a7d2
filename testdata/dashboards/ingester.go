package main

// ingesterBoard answers: are the processes well, what do they take in, and do
// the sinks take what they are given?
func ingesterBoard() board {
	return board{
		file: "ingester.json", uid: "spillway-ingester",
		title:     "Spillway / Ingester",
		about:     "Are the processes well, what do they take in, and do the sinks take what they are given?",
		variables: append(installationVariables(), streamVariable()),
		rows: []row{
			{"At a glance", 4, ingesterOverview()},
			{"Requests", 8, requests()},
			{"Sinks that forward", 8, forwarding()},
			{"Kafka and files", 8, queuesAndFiles()},
			{"Embedded store", 8, store()},
			{"Routes", 8, routes()},
			{"Go runtime", 8, runtimePanels()},
			{"Processes", 7, processes()},
		},
	}
}

func ingesterOverview() []panel {
	return []panel{
		{kind: number, title: "Ingesters", about: "Running processes.", unit: "none", width: 4,
			queries: []query{{expr: `count(spillway_build_info{@ingester})`, legend: "running"}}},
		{kind: number, title: "Items received", about: "Items per second, all streams that are selected.", unit: "short", width: 4,
			queries: []query{{expr: `sum(rate(spillway_received_items_total{@stream}[$__rate_interval]))`, legend: "items/s"}}},
		{kind: number, title: "Bytes received", about: "Decompressed.", unit: "binBps", width: 4,
			queries: []query{{expr: `sum(rate(spillway_received_bytes_total{@stream}[$__rate_interval]))`, legend: "bytes/s"}}},
		{kind: number, title: "Batches asked for again", about: "The part of the batches that was refused, for want of capacity or because the sink did not take them.", unit: "percent", width: 4, max: 100,
			steps:   []step{{0.1, "yellow"}, {1, "red"}},
			queries: []query{{expr: `100 * sum(rate(spillway_refused_batches_total{@stream}[$__rate_interval])) / sum(rate(spillway_batches_total{@stream}[$__rate_interval]) or rate(spillway_refused_batches_total{@stream}[$__rate_interval]))`, legend: "refused"}}},
		{kind: number, title: "Endpoints left out", about: "Endpoints of sinks that failed and are being probed.", unit: "none", width: 4,
			steps:   []step{{1, "red"}},
			queries: []query{{expr: `count(spillway_sink_endpoint_healthy{@ingester} == 0) or vector(0)`, legend: "endpoints"}}},
		{kind: number, title: "Rules in force", about: "Refused: the files of at least one ingester have problems, which its log names. The rules before them stay in force.", unit: "none", width: 4,
			words: map[string]word{"0": {"refused", "red"}, "1": {"as on disk", "green"}},
			queries: []query{{expr: `min(spillway_config_last_reload_successful{@ingester})`, legend: "last reload",
				zero: "one ingester with bad files is enough"}}},
	}
}

func requests() []panel {
	latency := func(q string) string {
		return `histogram_quantile(` + q + `, sum by (le, handler) (rate(spillway_http_request_duration_seconds_bucket{@ingester}[$__rate_interval])))`
	}
	return []panel{
		{kind: areas, title: "Requests, by path and answer", about: "HTTP requests per second. Which answer means what is in the README.", unit: "short", width: 8,
			queries: []query{{expr: `sum by (handler, code) (rate(spillway_http_requests_total{@ingester}[$__rate_interval])) > 0`, legend: "{{handler}} {{code}}"}}},
		{kind: lines, title: "Latency", about: "From the header of a request to the end of its answer. A sender's answer waits for the sink's.", unit: "s", width: 8,
			queries: []query{
				{expr: latency("0.5"), legend: "{{handler}} median"},
				{expr: latency("0.99"), legend: "{{handler}} 99%"},
			}},
		{kind: lines, title: "Requests in flight", about: "Requests being answered, those that wait for a slot included.", unit: "short", width: 8,
			queries: []query{{expr: `sum by (handler) (spillway_http_requests_in_flight{@ingester})`, legend: "{{handler}}",
				zero: "a request takes milliseconds: a scrape may meet none"}}},
		{kind: areas, title: "Batches, by outcome", about: "Batches per second. Refused ones are sent again.", unit: "short", width: 8,
			queries: []query{
				{expr: `sum(rate(spillway_batches_total{@stream}[$__rate_interval]))`, legend: "answered"},
				{expr: `sum by (reason) (rate(spillway_refused_batches_total{@stream}[$__rate_interval]))`, legend: "refused ({{reason}})"},
				{expr: `sum(rate(spillway_invalid_batches_total{@stream}[$__rate_interval]))`, legend: "cannot be read"},
			}},
		{kind: areas, title: "Bytes received, by stream", about: "Decompressed bytes per second.", unit: "binBps", width: 8,
			queries: []query{{expr: `sum by (stream) (rate(spillway_received_bytes_total{@stream}[$__rate_interval]))`, legend: "{{stream}}"}}},
		{kind: lines, title: "Request bodies in memory", about: "Compressed and decompressed, against the limit (dashed). What does not fit is refused and sent again.", unit: "bytes", width: 8, limits: "limit",
			queries: []query{
				{expr: `max(spillway_request_bytes{@ingester})`, legend: "fullest ingester", zero: "a request takes milliseconds: a scrape may meet none"},
				{expr: `min(spillway_request_bytes_limit{@ingester})`, legend: "limit"},
			}},
		{kind: areas, title: "Bytes, by outcome", about: "Decompressed bytes per second of what was admitted, exempt, dropped, invalid and refused.", unit: "binBps", width: 12, limits: "received",
			queries: []query{
				{expr: `sum(rate(spillway_admitted_bytes_total{@stream}[$__rate_interval]))`, legend: "admitted"},
				{expr: `sum(rate(spillway_exempt_bytes_total{@stream}[$__rate_interval]))`, legend: "exempt"},
				{expr: `sum by (reason) (rate(spillway_dropped_bytes_total{@stream}[$__rate_interval]))`, legend: "dropped ({{reason}})"},
				{expr: `sum(rate(spillway_invalid_bytes_total{@stream}[$__rate_interval]))`, legend: "invalid", zero: "bytes are counted only for what was found invalid before the sink"},
				{expr: `sum(rate(spillway_refused_bytes_total{@stream}[$__rate_interval]))`, legend: "refused (sink)"},
				{expr: `sum(rate(spillway_received_bytes_total{@stream}[$__rate_interval]))`, legend: "received"},
			}},
		{kind: lines, title: "TCP connections", about: "Accepted connections, by protocol.", unit: "short", width: 12,
			queries: []query{{expr: `sum by (protocol) (spillway_tcp_connections{@ingester})`, legend: "{{protocol}}"}}},
	}
}

func forwarding() []panel {
	latency := func(q string) string {
		return `histogram_quantile(` + q + `, sum by (le, sink) (rate(spillway_sink_request_duration_seconds_bucket{@ingester}[$__rate_interval])))`
	}
	return []panel{
		{kind: areas, title: "Requests to destinations, by answer", about: "Requests per second, by sink and code: an HTTP status, timeout, abandoned (the sender left first) or error (no answer).", unit: "short", width: 8,
			queries: []query{{expr: `sum by (sink, code) (rate(spillway_sink_requests_total{@ingester}[$__rate_interval])) > 0`, legend: "{{sink}} {{code}}"}}},
		{kind: lines, title: "Latency of destinations", about: "From sending a request to the end of its answer or the failure.", unit: "s", width: 8,
			queries: []query{
				{expr: latency("0.5"), legend: "{{sink}} median"},
				{expr: latency("0.99"), legend: "{{sink}} 99%"},
			}},
		{kind: lines, title: "Requests in flight, by endpoint", about: "Requests that wait for the destination's answer.", unit: "short", width: 8,
			queries: []query{{expr: `sum by (sink, endpoint) (spillway_sink_requests_in_flight{@ingester})`, legend: "{{sink}} {{endpoint}}", zero: "a request takes milliseconds: a scrape may meet none"}}},
		{kind: lines, title: "Endpoints in use", about: "1 while every ingester uses the endpoint, lower while some leave it out after a failure.", unit: "none", width: 6, max: 1,
			queries: []query{{expr: `avg by (sink, endpoint) (spillway_sink_endpoint_healthy{@ingester})`, legend: "{{sink}} {{endpoint}}"}}},
		{kind: lines, title: "Batches given to another endpoint", about: "Batches per second that an endpoint got because another one had failed to take them.", unit: "short", width: 6,
			queries: []query{{expr: `sum by (sink, endpoint) (rate(spillway_sink_retries_total{@ingester}[$__rate_interval]))`, legend: "{{sink}} {{endpoint}}"}}},
		{kind: areas, title: "Bytes sent", about: "Compressed bytes per second, those of failed requests included.", unit: "binBps", width: 6,
			queries: []query{{expr: `sum by (sink) (rate(spillway_sink_sent_bytes_total{@ingester}[$__rate_interval]))`, legend: "{{sink}}"}}},
		{kind: lines, title: "Parts that the destination cannot hold", about: "Metadata, start timestamps and exemplars per second that cost no token and are not stored at the destination.", unit: "short", width: 6,
			queries: []query{{expr: `sum by (sink, part) (rate(spillway_sink_unsent_parts_total{@ingester}[$__rate_interval]))`, legend: "{{sink}} {{part}}",
				zero: "senders may send none of them, and a 2.0 destination holds all"}}},
	}
}

func queuesAndFiles() []panel {
	latency := func(q string) string {
		return `histogram_quantile(` + q + `, sum by (le, sink) (rate(spillway_sink_kafka_produce_duration_seconds_bucket{@ingester}[$__rate_interval])))`
	}
	return []panel{
		{kind: areas, title: "Messages acknowledged by Kafka", about: "Messages per second that all in-sync replicas have, by topic.", unit: "short", width: 6,
			queries: []query{{expr: `sum by (sink, topic) (rate(spillway_sink_kafka_messages_total{@ingester}[$__rate_interval])) > 0`, legend: "{{sink}} {{topic}}"}}},
		{kind: lines, title: "Latency of Kafka", about: "How long a message took until it was acknowledged or given up, tries included.", unit: "s", width: 6,
			queries: []query{
				{expr: latency("0.5"), legend: "{{sink}} median"},
				{expr: latency("0.99"), legend: "{{sink}} 99%"},
			}},
		{kind: areas, title: "Bytes to Kafka and files", about: "Uncompressed bytes per second of what was stored, by topic or stream.", unit: "binBps", width: 6,
			queries: []query{
				{expr: `sum by (sink, topic) (rate(spillway_sink_kafka_message_bytes_total{@ingester}[$__rate_interval])) > 0`, legend: "{{sink}} {{topic}}"},
				{expr: `sum by (sink, stream) (rate(spillway_sink_file_written_bytes_total{@stream}[$__rate_interval])) > 0`, legend: "{{sink}} {{stream}}"},
			}},
		{kind: lines, title: "Failures of Kafka and files", about: "Failed requests to Kafka per second, by Kafka's error, those that were tried again included; and writes to files that failed and were taken back, on a full disk, say.", unit: "short", width: 6,
			queries: []query{
				{expr: `sum by (sink, error) (rate(spillway_sink_kafka_produce_errors_total{@ingester}[$__rate_interval]))`, legend: "{{sink}} {{error}}", zero: "a cluster that is well", empty: "an error appears when it happens first"},
				{expr: `sum by (sink, stream) (rate(spillway_sink_file_failed_writes_total{@stream}[$__rate_interval]))`, legend: "{{sink}} {{stream}}", zero: "a disk that is well"},
			}},
		{kind: lines, title: "Kafka in use", about: "1 while every ingester uses the cluster, lower while some leave it alone after a failure.", unit: "none", width: 6, max: 1,
			queries: []query{{expr: `avg by (sink) (spillway_sink_kafka_healthy{@ingester})`, legend: "{{sink}}"}}},
		{kind: lines, title: "Size of files", about: "Bytes that the files of a stream take, over all ingesters.", unit: "bytes", width: 6,
			queries: []query{{expr: `sum by (sink, stream) (spillway_sink_file_bytes{@stream})`, legend: "{{sink}} {{stream}}"}}},
		{kind: lines, title: "Files closed", about: "Files that were closed because they were large or old enough, in the time between two points.", unit: "short", width: 6,
			queries: []query{{expr: `sum by (sink, stream) (increase(spillway_sink_file_closed_files_total{@stream}[$__rate_interval]))`, legend: "{{sink}} {{stream}}"}}},
		{kind: areas, title: "Deleted from files", about: "Bytes per second that were deleted to stay within max_bytes: the oldest goes first.", unit: "binBps", width: 6,
			queries: []query{{expr: `sum by (sink, stream) (rate(spillway_sink_file_deleted_bytes_total{@stream}[$__rate_interval]))`, legend: "{{sink}} {{stream}}"}}},
	}
}

func store() []panel {
	const fine = "a healthy store refuses nothing"
	return []panel{
		{kind: lines, title: "Batches and commits", about: "Per second. Batches that wait at the same time share a commit.", unit: "short", width: 6,
			queries: []query{
				{expr: `sum by (sink) (rate(spillway_tsdb_batches_total{@ingester}[$__rate_interval]))`, legend: "{{sink}} batches"},
				{expr: `sum by (sink) (rate(spillway_tsdb_commits_total{@ingester}[$__rate_interval]))`, legend: "{{sink}} commits"},
			}},
		{kind: lines, title: "Failed commits and refused items", about: "Per second. After a failed commit senders are asked to send again; items are refused for good, by reason.", unit: "short", width: 6,
			queries: []query{
				{expr: `sum by (sink) (rate(spillway_tsdb_failed_commits_total{@ingester}[$__rate_interval]))`, legend: "{{sink}} failed commits", zero: fine},
				{expr: `sum by (sink, reason) (rate(spillway_tsdb_rejected_items_total{@ingester}[$__rate_interval]))`, legend: "{{sink}} {{reason}}", empty: "a reason appears with its first refused item"},
				{expr: `sum by (sink) (rate(spillway_tsdb_rejected_exemplars_total{@ingester}[$__rate_interval]))`, legend: "{{sink}} exemplars", zero: fine},
			}},
		{kind: lines, title: "Series in memory", about: "Series of the embedded store that got a sample in the last hours.", unit: "short", width: 6,
			queries: []query{{expr: `sum by (sink) (prometheus_tsdb_head_series{@ingester} and on (instance) spillway_build_info{@ingester})`, legend: "{{sink}}"}}},
		{kind: lines, title: "Size on disk", about: "Blocks of the embedded store, and its log of what is not in a block yet.", unit: "bytes", width: 6,
			queries: []query{
				{expr: `sum by (sink) (prometheus_tsdb_storage_blocks_bytes{@ingester} and on (instance) spillway_build_info{@ingester})`, legend: "{{sink}} blocks", zero: "the first block is made after two hours"},
				{expr: `sum by (sink) (prometheus_tsdb_wal_storage_size_bytes{@ingester} and on (instance) spillway_build_info{@ingester})`, legend: "{{sink}} log", zero: "the log's size is taken when a block is made"},
			}},
	}
}

func routes() []panel {
	return []panel{
		{kind: lines, title: "Routes remembered", about: "The part of the groups whose route was remembered. Low: senders send ever new series, or the memory for routes is too small.", unit: "percent", width: 6, max: 100,
			queries: []query{{expr: `100 * sum by (stream) (rate(spillway_route_hits_total{@stream}[$__rate_interval])) / (sum by (stream) (rate(spillway_route_hits_total{@stream}[$__rate_interval]) + rate(spillway_route_misses_total{@stream}[$__rate_interval])) > 0)`, legend: "{{stream}}"}}},
		{kind: lines, title: "Misses", about: "Groups per second whose labels had to be read.", unit: "short", width: 6,
			queries: []query{{expr: `sum by (stream) (rate(spillway_route_misses_total{@stream}[$__rate_interval]))`, legend: "{{stream}}"}}},
		{kind: lines, title: "Routes and evictions", about: "Routes that are remembered, and those forgotten per second to keep the bound.", unit: "short", width: 6,
			queries: []query{
				{expr: `sum by (stream) (spillway_routes{@stream})`, legend: "{{stream}} routes"},
				{expr: `sum by (stream) (rate(spillway_routes_evicted_total{@stream}[$__rate_interval]))`, legend: "{{stream}} evicted/s", zero: "nothing is evicted while the routes fit"},
			}},
		{kind: lines, title: "Memory of routes", about: "Bytes that remembered routes take, for the ingester that takes most.", unit: "bytes", width: 6,
			queries: []query{{expr: `max by (stream) (spillway_route_bytes{@stream})`, legend: "{{stream}}"}}},
	}
}

// ours leaves out what other processes export under the same names.
const ours = ` and on (instance) spillway_build_info{@ingester}`

func runtimePanels() []panel {
	by := func(expr string) string { return `sum by (instance) (` + expr + ours + `)` }
	return []panel{
		{kind: lines, title: "CPU", about: "Cores.", unit: "short", width: 6,
			queries: []query{{expr: by(`rate(process_cpu_seconds_total{@ingester}[$__rate_interval])`), legend: "{{instance}}"}}},
		{kind: lines, title: "Memory", about: "Resident, and the heap in use.", unit: "bytes", width: 6,
			queries: []query{
				{expr: by(`process_resident_memory_bytes{@ingester}`), legend: "{{instance}} resident"},
				{expr: by(`go_memstats_heap_inuse_bytes{@ingester}`), legend: "{{instance}} heap"},
			}},
		{kind: lines, title: "Garbage collection", about: "The longest of the latest pauses, and collections per second.", unit: "s", width: 6,
			queries: []query{{expr: by(`go_gc_duration_seconds{@ingester, quantile=~"1|1.0"}`), legend: "{{instance}} longest pause"}}},
		{kind: lines, title: "Goroutines and file descriptors", about: "Both follow the connections; a steady rise is a leak.", unit: "short", width: 6,
			queries: []query{
				{expr: by(`go_goroutines{@ingester}`), legend: "{{instance}} goroutines"},
				{expr: by(`process_open_fds{@ingester}`), legend: "{{instance}} descriptors"},
			}},
	}
}

func processes() []panel {
	return []panel{
		{kind: cells, title: "Processes", about: "What runs where, since when, and when its rules were last put in force.", unit: "none", width: 24,
			columns: []column{
				{title: "Running", unit: "none"},
				{title: "Up for", unit: "s"},
				{title: "Rules in force for", unit: "s"},
				{title: "N", unit: "none"},
				{title: "Refused reloads", unit: "none", steps: []step{{1, "red"}}},
			},
			queries: []query{
				{expr: `max by (instance, version) (spillway_build_info{@ingester})`},
				{expr: `max by (instance) (time() - process_start_time_seconds{@ingester}` + ours + `)`},
				{expr: `max by (instance) (time() - spillway_config_last_reload_success_timestamp_seconds{@ingester})`},
				{expr: `max by (instance) (spillway_policy_ingesters{@ingester})`},
				{expr: `sum by (instance) (spillway_config_reload_failures_total{@ingester})`},
			}},
	}
}
