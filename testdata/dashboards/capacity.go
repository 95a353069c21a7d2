package main

// capacity answers: how many batches are processed at once, which signal decides
// that, and who has to wait or come back later?
func capacity() board {
	return board{
		file: "capacity-governor.json", uid: "spillway-governor",
		title:     "Spillway / Capacity Governor",
		about:     "How many batches are processed at once, which signal decides it, and who waits or is told to come back later?",
		variables: installationVariables(),
		rows: []row{
			{"At a glance", 4, capacityOverview()},
			{"Capacity", 8, capacityGraphs()},
			{"CPU", 8, capacityCPU()},
			{"Waiting and time", 8, capacityWaiting()},
			{"Shed", 8, capacityShed()},
		},
	}
}

const (
	noLimit = "a process whose CPU is not limited shows 0 cores, and model and step stand aside"
	enough  = "a process that has CPU enough is never short of it"
	unshed  = "nothing is shed while the capacity is enough"
)

func capacityOverview() []panel {
	return []panel{
		{kind: number, title: "Capacity", about: "Batches that may be processed at once, on all ingesters that are selected.", unit: "short", width: 4,
			queries: []query{{expr: `sum(spillway_governor_capacity{@ingester})`, legend: "slots"}}},
		{kind: number, title: "In flight", about: "Batches that hold a slot now.", unit: "short", width: 4,
			queries: []query{{expr: `sum(spillway_governor_in_flight{@ingester})`, legend: "batches"}}},
		{kind: number, title: "Waiting", about: "Batches that wait for a slot now.", unit: "short", width: 4,
			queries: []query{{expr: `sum(spillway_governor_waiting{@ingester})`, legend: "batches", zero: "a wait is over in milliseconds: the scrape may meet none"}}},
		{kind: number, title: "CPU of the limit", about: "CPU used over the container's limit, for the busiest ingester, as the governor sees it.", unit: "percentunit", width: 4,
			steps: []step{{0.9, "yellow"}, {0.98, "red"}},
			queries: []query{{expr: `max(spillway_governor_cpu_used_cores{@ingester} / (spillway_governor_cpu_limit_cores{@ingester} > 0))`, legend: "used",
				empty: noLimit}}},
		{kind: number, title: "Shed", about: "Batches per second that were told to come back later. Nothing is lost: their senders keep them.", unit: "short", width: 4,
			steps:   []step{{0.001, "red"}},
			queries: []query{{expr: `sum(rate(spillway_governor_shed_total{@ingester}[$__rate_interval]))`, legend: "batches/s"}}},
		{kind: number, title: "Signals that can govern", about: "How many ingesters are in each regime: which of model, step and latency have what they need.", unit: "none", width: 4,
			queries: []query{{expr: `sum by (regime) (spillway_governor_regime{@ingester})`, legend: "{{regime}}"}}},
	}
}

func capacityGraphs() []panel {
	return []panel{
		{kind: lines, title: "Capacity by source", about: "What each signal would allow on the tightest ingester; the lowest is the capacity. A signal at the ceiling is switched off or stands aside. Choose one ingester.", unit: "short", width: 12, limits: "ceiling", log: true,
			queries: []query{
				{expr: `min by (source) (spillway_governor_signal_capacity{@ingester})`, legend: "{{source}}"},
				{expr: `min(spillway_governor_capacity{@ingester})`, legend: "capacity"},
				{expr: `min(spillway_governor_max_in_flight{@ingester})`, legend: "ceiling"},
			}},
		{kind: lines, title: "In flight and waiting", about: "Batches that hold a slot and batches that wait for one, against the capacity (dashed).", unit: "short", width: 12, limits: "capacity",
			queries: []query{
				{expr: `sum(spillway_governor_in_flight{@ingester})`, legend: "in flight"},
				{expr: `sum(spillway_governor_waiting{@ingester})`, legend: "waiting"},
				{expr: `sum(spillway_governor_capacity{@ingester})`, legend: "capacity"},
			}},
		{kind: lines, title: "Capacity by ingester", about: "Ingesters with the same limit and the same load should look alike.", unit: "short", width: 8, log: true,
			queries: []query{{expr: `sum by (instance) (spillway_governor_capacity{@ingester})`, legend: "{{instance}}"}}},
		{kind: areas, title: "What the model decided", about: "Samples per second by verdict: why the model moved the capacity, or did not.", unit: "short", width: 8,
			queries: []query{{expr: `sum by (verdict) (rate(spillway_governor_model_verdicts_total{@ingester}[$__rate_interval])) > 0`, legend: "{{verdict}}"}}},
		{kind: lines, title: "Cuts by the pressure step", about: "How often the container stood still for CPU for so long that the capacity was halved.", unit: "short", width: 8,
			queries: []query{{expr: `sum by (instance) (increase(spillway_governor_step_cuts_total{@ingester}[$__rate_interval]))`, legend: "{{instance}}", zero: enough}}},
	}
}

func capacityCPU() []panel {
	return []panel{
		{kind: lines, title: "CPU used, needed and limit", about: "Cores. Needed is the limit at which the load would just fit; while batches wait or are shed, the real need is higher.", unit: "short", width: 12, limits: ".* limit",
			queries: []query{
				{expr: `sum by (instance) (rate(process_cpu_seconds_total{@ingester}[$__rate_interval]) and on (instance) spillway_build_info{@ingester})`, legend: "{{instance}} used"},
				{expr: `sum by (instance) (spillway_governor_cpu_required_cores{@ingester} > 0)`, legend: "{{instance}} needed", empty: noLimit},
				{expr: `sum by (instance) (spillway_governor_cpu_limit_cores{@ingester} > 0)`, legend: "{{instance}} limit", empty: noLimit},
			}},
		{kind: lines, title: "Throttled and stalled", about: "Parts of a second per second: stalled is when the container stood still for CPU, throttled what the limit took away, over all processors.", unit: "percentunit", width: 12,
			queries: []query{
				{expr: `sum by (instance) (rate(spillway_governor_cpu_stalled_seconds_total{@ingester}[$__rate_interval]))`, legend: "{{instance}} stalled", zero: enough},
				{expr: `sum by (instance) (rate(spillway_governor_cpu_throttled_seconds_total{@ingester}[$__rate_interval]))`, legend: "{{instance}} throttled", zero: enough},
			}},
		{kind: lines, title: "CPU of one batch", about: "CPU time of one batch, as the model last measured it. A step up is a change in what senders send or in the rules.", unit: "s", width: 8,
			queries: []query{{expr: `avg by (instance) (spillway_governor_cpu_per_batch_seconds{@ingester} > 0)`, legend: "{{instance}}", empty: noLimit}}},
		{kind: lines, title: "CPU without batches", about: "Cores that the process uses when nothing is in flight, estimated: queries, compaction, garbage collection.", unit: "short", width: 8,
			queries: []query{{expr: `avg by (instance) (spillway_governor_cpu_background_cores{@ingester})`, legend: "{{instance}}", zero: "the estimate is made from samples without any batch in flight, and is 0 before the first"}}},
		{kind: lines, title: "Target over use", about: "Above 1 there is CPU left and the capacity rises, below 1 it falls. 0: the CPU was barely used.", unit: "none", width: 8,
			queries: []query{{expr: `avg by (instance) (spillway_governor_model_ratio{@ingester})`, legend: "{{instance}}", zero: "0 means that the CPU was barely used"}}},
	}
}

func capacityWaiting() []panel {
	wait := func(q string) string {
		return `histogram_quantile(` + q + `, sum by (le) (rate(spillway_governor_wait_seconds_bucket{@ingester}[$__rate_interval])))`
	}
	const nobody = "no batch waits while slots are free"
	return []panel{
		{kind: lines, title: "Wait for a slot", about: "How long batches waited that got a slot, but not at once.", unit: "s", width: 8,
			queries: []query{
				{expr: wait("0.5"), legend: "median", empty: nobody},
				{expr: wait("0.99"), legend: "99%", empty: nobody},
			}},
		{kind: lines, title: "Time in a slot", about: "How long batches hold a slot: of late, and the best mean known. Far above the best, the sink or the CPU is the bottleneck, and the latency limit falls.", unit: "s", width: 8,
			queries: []query{
				{expr: `max by (instance) (spillway_governor_batch_seconds{@ingester, kind="mean"})`, legend: "{{instance}} mean"},
				{expr: `max by (instance) (spillway_governor_batch_seconds{@ingester, kind="best"})`, legend: "{{instance}} best"},
			}},
		{kind: lines, title: "Flows and what each is owed", about: "Flows (API keys) with work, and the slots that each of them is owed before anything is lent.", unit: "short", width: 8,
			queries: []query{
				{expr: `sum by (instance) (spillway_governor_flows{@ingester})`, legend: "{{instance}} flows"},
				{expr: `min by (instance) (spillway_governor_guaranteed{@ingester})`, legend: "{{instance}} owed to each"},
			}},
	}
}

func capacityShed() []panel {
	return []panel{
		{kind: areas, title: "Shed, by reason", about: "Batches per second that were told to come back later, and why.", unit: "short", width: 8,
			queries: []query{{expr: `sum by (reason) (rate(spillway_governor_shed_total{@ingester}[$__rate_interval])) > 0`, legend: "{{reason}}", empty: unshed}}},
		{kind: lines, title: "Arrivals and completions", about: "Batches per second that asked for a slot, and that gave one back. The gap is shed.", unit: "short", width: 8,
			queries: []query{
				{expr: `sum(rate(spillway_governor_arrivals_total{@ingester}[$__rate_interval]))`, legend: "arrivals"},
				{expr: `sum(rate(spillway_governor_completions_total{@ingester}[$__rate_interval]))`, legend: "completions"},
			}},
		{kind: lines, title: "Refused for want of capacity, by stream", about: "Batches per second whose senders were asked to send them again: shed, or without room in memory for their bodies.", unit: "short", width: 8,
			queries: []query{{expr: `sum by (stream) (rate(spillway_refused_batches_total{@ingester, reason="capacity"}[$__rate_interval]))`, legend: "{{stream}}"}}},
	}
}
