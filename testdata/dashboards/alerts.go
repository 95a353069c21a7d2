package main

// classAlerts are about what the policy does to a class. A class with rate 0 is
// meant to drop, so it has an alert of its own that may be silenced.
func classAlerts() []rule {
	const (
		offered = "class:spillway_offered_items:rate5m"
		dropped = "class:spillway_dropped_items:rate5m"
		limit   = "class:spillway_rate_limit:sum"
		which   = "{{ $labels.stream }} class {{ $labels.class }}"
	)
	return []rule{
		{alert: "SpillwayClassNearLimit", wait: "15m", severity: "warning",
			expr:        offered + ` / (` + limit + ` > 0) > 0.9`,
			summary:     which + " is near its limit",
			description: which + " is offered {{ $value | humanizePercentage }} of its rate. Above 100% it spends its burst, then items are dropped."},
		{alert: "SpillwayClassDropping", wait: "10m", severity: "warning",
			expr:        dropped + ` / ` + offered + ` > 0.01 and ` + limit + ` > 0`,
			summary:     which + " is dropping",
			description: "{{ $value | humanizePercentage }} of what is offered to " + which + " is dropped for good."},
		{alert: "SpillwayClassDroppingBelowItsRate", wait: "15m", severity: "warning",
			expr:        dropped + ` / ` + offered + ` > 0.01 and ` + offered + ` / (` + limit + ` > 0) < 0.8`,
			summary:     which + " is dropping below its rate",
			description: "{{ $value | humanizePercentage }} of what is offered to " + which + " is dropped, though less than 80% of its rate is offered: its burst is too small, or the load is spread unevenly over the ingesters."},
		{alert: "SpillwayDefaultClassShareHigh", wait: "1h", severity: "info",
			expr: `sum by (@installation, stream) (` + offered + `{class="default"}) / sum by (@installation, stream) (` + offered + `) > 0.5` +
				` and on (@installation, stream) count by (@installation, stream) (` + limit + `{class!="default"}) > 0`,
			summary:     "Most {{ $labels.stream }} match no class of their own",
			description: "{{ $value | humanizePercentage }} of the offered {{ $labels.stream }} fall into the default class, where whoever sends most takes the budget from all others."},
		{alert: "SpillwayClassUnconfigured", wait: "5m", severity: "warning",
			expr:        `min by (@class) (spillway_class_configured) == 0`,
			summary:     which + " is named by a rule, but not defined",
			description: "Everything that matches the rules of " + which + " is dropped, since the policy does not define the class."},
		{alert: "SpillwayClassRateZero", wait: "1h", severity: "info",
			expr:        dropped + ` > 0 and ` + limit + ` == 0 and min by (@class) (spillway_class_configured) == 1`,
			summary:     which + " has rate 0 and drops everything",
			description: which + " drops {{ $value | humanize }} items per second, all that it is offered, since the policy gives it rate 0. Silence this for classes that are meant as a filter."},
	}
}

// processAlerts are about ingesters, sinks and the governor.
func processAlerts() []rule {
	const where = "{{ with $labels.cluster }} in {{ . }}{{ end }}{{ with $labels.namespace }}/{{ . }}{{ end }}"
	return []rule{
		{alert: "SpillwayAbsent", wait: "10m", severity: "critical",
			expr:        `absent(spillway_build_info)`,
			summary:     "No Spillway is to be seen",
			description: "No Spillway process has been scraped, nor has one written its own metrics.",
			empty:       "while a Spillway runs, there is nothing to report; the unit test shows that it fires"},
		{alert: "SpillwayIngesterCountDiffers", wait: "15m", severity: "warning",
			expr: `max by (@installation) (spillway_policy_ingesters) != count by (@installation) (spillway_policy_ingesters)` +
				` or max by (@installation) (spillway_policy_ingesters) != min by (@installation) (spillway_policy_ingesters)`,
			summary:     "The number of running ingesters" + where + " is not N",
			description: "The policy is divided by {{ $value }}, which is not the number of running ingesters, or not what every one of them divides by. With fewer running ingesters the installation admits less than the policy says, with more it admits more."},
		{alert: "SpillwayReloadRefused", wait: "5m", severity: "warning",
			expr:        `count by (@installation) (spillway_config_last_reload_successful == 0)`,
			summary:     "The policy or configuration on disk" + where + " was refused",
			description: "{{ $value }} ingesters refused what is on disk. The rules before it stay in force, until a restart, which fails."},
		{alert: "SpillwaySinkFailing", wait: "5m", severity: "critical",
			expr: `sum by (@installation, stream) (rate(spillway_refused_batches_total{reason="sink"}[5m]))` +
				` / sum by (@installation, stream) (rate(spillway_batches_total[5m]) or rate(spillway_refused_batches_total[5m])) > 0.01`,
			summary:     "The sink of {{ $labels.stream }} does not take what it is given",
			description: "{{ $value | humanizePercentage }} of the batches of {{ $labels.stream }} could not be stored. Their senders keep them and try again, as long as their own queues last."},
		{alert: "SpillwayEndpointLeftOut", wait: "10m", severity: "warning",
			expr:        `count by (@installation, sink, endpoint) (spillway_sink_endpoint_healthy == 0 or spillway_sink_kafka_healthy == 0)`,
			summary:     "{{ with $labels.endpoint }}Endpoint {{ . }}{{ else }}The Kafka cluster{{ end }} of sink {{ $labels.sink }} is left out",
			description: "{{ $value }} ingesters leave {{ with $labels.endpoint }}{{ . }}{{ else }}the cluster{{ end }} out after failures and probe it. The other endpoints of {{ $labels.sink }}, if there are any, carry its load."},
		{alert: "SpillwayGovernorAtFloor", wait: "10m", severity: "warning",
			expr:        `count by (@installation) (spillway_governor_capacity <= 1 and spillway_governor_max_in_flight > 1 and rate(spillway_governor_arrivals_total[5m]) > 0)`,
			summary:     "The governor" + where + " is at its floor",
			description: "{{ $value }} ingesters process one batch at a time, the least there is: they have too little CPU, or their sink has become very slow."},
		{alert: "SpillwayShedding", wait: "5m", severity: "warning",
			expr:        `sum by (@installation) (rate(spillway_governor_shed_total[5m])) / sum by (@installation) (rate(spillway_governor_arrivals_total[5m])) > 0.01`,
			summary:     "Batches are told to come back later" + where,
			description: "{{ $value | humanizePercentage }} of the batches got no slot in time. Their senders keep them and try again, as long as their own queues last."},
	}
}
