package main

const rateControlUID = "spillway-ratecontrol"

// rateControl answers: who is being dropped, why, and what does each class have left?
func rateControl() board {
	return board{
		file: "rate-control.json", uid: rateControlUID,
		title: "Spillway / Rate Control",
		about: "Who is being dropped, and why? What each class may spend, spends, and has left.",
		variables: append(installationVariables(), streamVariable(),
			classVariable()),
		rows: []row{
			{"At a glance", 4, rateControlOverview()},
			{"Classes", 9, []panel{classTable()}},
			{"Offered, admitted, dropped", 8, classRates()},
			{"Rate and use", 8, classUse()},
			{"Burst and tokens", 8, classTokens()},
			{"Without a budget of their own", 8, withoutBudget()},
			{"Every item has one outcome", 8, outcomes()},
		},
	}
}

const byClass = "stream, class"

func rateControlOverview() []panel {
	return []panel{
		{kind: number, title: "Received", about: "Items per second of batches that could be read.", unit: "short", width: 4,
			queries: []query{{expr: `sum(rate(spillway_received_items_total{@stream}[$__rate_interval]))`, legend: "items/s"}}},
		{kind: number, title: "Dropped by rate control", about: "Items per second for which their class had no tokens. They are lost.", unit: "short", width: 4,
			steps:   []step{{0.001, "red"}},
			queries: []query{{expr: dropped("", "@class, ", panelWindow), legend: "items/s"}}},
		{kind: number, title: "Drop percentage (1h)", about: "Of all items that were offered to the classes in the last hour, exempt telemetry aside, the part that rate control dropped. (Some tools divide by what was admitted, which gives a higher figure.)", unit: "percent", width: 4, max: 100,
			steps:   []step{{1, "yellow"}, {5, "red"}},
			queries: []query{{expr: `100 * ` + dropped("", "@class, ", "1h") + ` / ` + offered("", "@class, ", "1h"), legend: "%"}}},
		{kind: number, title: "Classes that drop now", about: "Classes with a budget of their own that lose items at this moment. Rate 0 and unconfigured classes are counted below.", unit: "none", width: 4,
			steps: []step{{1, "red"}},
			queries: []query{{expr: `count((` + dropped(byClass, "@class, ", panelWindow) + ` > 0) and on (stream, class) sum by (stream, class) (spillway_class_rate_limit{@class}) > 0) or vector(0)`,
				legend: "classes"}}},
		{kind: number, title: "Default Class Share", about: "The part of the offered items that matched no class of its own. High: most traffic has no owner.", unit: "percent", width: 4, max: 100,
			steps: []step{{50, "yellow"}, {80, "orange"}},
			queries: []query{{expr: `100 * ` + offered("", `@stream, class="default", `, panelWindow) + ` / ` + offered("", "@stream, ", panelWindow),
				legend: "%"}}},
		{kind: number, title: "Ingesters", about: "Running ingesters, and N, which every policy is divided by. If they differ, the installation admits more or less than the policy says.", unit: "none", width: 4,
			queries: []query{
				{expr: `count(spillway_build_info{@ingester})`, legend: "running"},
				{expr: `max(spillway_policy_ingesters{@ingester})`, legend: "N"},
			}},
	}
}

// classTable is the policy beside what is made of it, one row for each class.
func classTable() panel {
	return panel{
		kind: cells, title: "Classes now", unit: "short", width: 24,
		about: "All ingesters that are selected together. What is 0 now is left blank. Use is offered over limit: above 100% the burst is being spent or items are dropped. A class with burst 1 has less than 1% of the stream's rate and drops every series that brings two samples at once.",
		columns: []column{
			{title: "Limit /s", unit: "short"},
			{title: "Offered /s", unit: "short"},
			{title: "Use", unit: "percentunit", steps: []step{{0.9, "yellow"}, {1, "red"}}},
			{title: "Admitted /s", unit: "short"},
			{title: "Dropped /s", unit: "short", steps: []step{{0.001, "red"}}},
			{title: "Dropped (1h)", unit: "percent", steps: []step{{1, "yellow"}, {5, "red"}}},
			{title: "Burst", unit: "short"},
			{title: "Tokens", unit: "short"},
			{title: "Configured", unit: "none"},
		},
		queries: []query{
			{expr: `sum by (stream, class) (spillway_class_rate_limit{@class})`},
			{expr: offered(byClass, "@class, ", panelWindow) + ` > 0`},
			{expr: use()},
			{expr: `sum by (stream, class) (rate(spillway_admitted_items_total{@class}[$__rate_interval])) > 0`},
			{expr: dropped(byClass, "@class, ", panelWindow) + ` > 0`},
			{expr: `100 * ` + dropped(byClass, "@class, ", "1h") + ` / (` + offered(byClass, "@class, ", "1h") + ` > 0)`},
			{expr: `sum by (stream, class) (spillway_class_burst{@class})`},
			{expr: `sum by (stream, class) (spillway_class_tokens{@class})`},
			{expr: `min by (stream, class) (spillway_class_configured{@class})`},
		},
	}
}

// use is what is offered to a class over what it may spend, 1 for its whole rate.
func use() string {
	return offered(byClass, "@class, ", panelWindow) + ` / (sum by (stream, class) (spillway_class_rate_limit{@class}) > 0)`
}

func classRates() []panel {
	const legend = "{{stream}} {{class}}"
	return []panel{
		{kind: areas, title: "Offered, by class", about: "Items per second that relabelling left and that were put into the class: admitted, dropped or refused.", unit: "short", width: 8,
			queries: []query{{expr: offered(byClass, "@class, ", panelWindow) + ` > 0`, legend: legend}}},
		{kind: areas, title: "Admitted, by class", about: "Items per second that had tokens and that the sink acknowledged.", unit: "short", width: 8,
			queries: []query{{expr: `sum by (stream, class) (rate(spillway_admitted_items_total{@class}[$__rate_interval])) > 0`, legend: legend}}},
		{kind: areas, title: "Dropped, by class", about: "Items per second that had no tokens. Classes that drop nothing are left out.", unit: "short", width: 8,
			queries: []query{{expr: dropped(byClass, "@class, ", panelWindow) + ` > 0`, legend: legend}}},
		{kind: lines, title: "Dropped, in percent of offered", about: "100% is a class that drops everything: rate 0, unconfigured, or a burst smaller than every series.", unit: "percent", width: 8, max: 100,
			queries: []query{{expr: `100 * ` + dropped(byClass, "@class, ", panelWindow) + ` / (` + offered(byClass, "@class, ", panelWindow) + ` > 0)`, legend: legend}}},
		{kind: lines, title: "Drop percentage (1h), by class", about: "The part of what was offered in the last hour that was dropped. After a change of the policy it takes an hour to settle.", unit: "percent", width: 8, max: 100,
			queries: []query{{expr: `100 * ` + dropped(byClass, "@class, ", "1h") + ` / (` + offered(byClass, "@class, ", "1h") + ` > 0)`, legend: legend}}},
		{kind: bars, title: "Top classes by drops", about: "Items dropped by rate control in the time that is shown.", unit: "short", width: 8, steps: []step{{1, "red"}},
			queries: []query{{expr: `topk(10, sum by (stream, class) (increase(spillway_dropped_items_total{@class, reason="ratelimit"}[$__range])) > 0)`, legend: legend}}},
	}
}

func classUse() []panel {
	return []panel{
		{kind: lines, title: "Use of the configured rate", about: "Offered over limit, for all ingesters together. 100% is the whole rate: above it the burst is spent, then items are dropped.", unit: "percentunit", width: 8,
			steps:   []step{{1, "red"}},
			queries: []query{{expr: use(), legend: "{{stream}} {{class}}"}}},
		{kind: lines, title: "Configured rate against use", about: "What the class may spend (dashed) and what is offered to it, in items per second. Choose one class.", unit: "short", width: 8, limits: ".* limit",
			queries: []query{
				{expr: offered(byClass, "@class, ", panelWindow), legend: "{{stream}} {{class}} offered"},
				{expr: `sum by (stream, class) (rate(spillway_admitted_items_total{@class}[$__rate_interval]))`, legend: "{{stream}} {{class}} admitted"},
				{expr: `sum by (stream, class) (spillway_class_rate_limit{@class})`, legend: "{{stream}} {{class}} limit"},
			}},
		{kind: lines, title: "Uneven load: busiest ingester against the mean", about: "Each ingester has 1/N of every rate. At 2 the busiest one gets twice the mean of a class, and drops when the class as a whole uses half of its rate.", unit: "none", width: 8,
			steps: []step{{1.5, "orange"}},
			queries: []query{{
				expr:   `max by (stream, class) (` + offered("stream, class, instance", "@class, ", panelWindow) + `) / (avg by (stream, class) (` + offered("stream, class, instance", "@class, ", panelWindow) + `) > 0)`,
				legend: "{{stream}} {{class}}",
			}}},
	}
}

func classTokens() []panel {
	const limited = ` and spillway_class_rate_limit{@class} > 0`
	return []panel{
		{kind: lines, title: "Tokens left, in percent of the burst", about: "The emptiest bucket of any ingester, at its lowest between two points. At 0 the class drops.", unit: "percentunit", width: 8, max: 1,
			queries: []query{{expr: `min by (stream, class) (min_over_time(spillway_class_tokens{@class}[$__rate_interval]) / spillway_class_burst{@class}` + limited + `)`,
				legend: "{{stream}} {{class}}"}}},
		{kind: lines, title: "Tokens and burst", about: "Tokens that the class has on all ingesters together, and what it can have (dashed). Choose one class.", unit: "short", width: 8, limits: ".* burst",
			queries: []query{
				{expr: `sum by (stream, class) (spillway_class_tokens{@class}` + limited + `)`, legend: "{{stream}} {{class}} tokens"},
				{expr: `sum by (stream, class) (spillway_class_burst{@class}` + limited + `)`, legend: "{{stream}} {{class}} burst"},
			}},
		{kind: bars, title: "Burst of one ingester", about: "A series or batch with more items than this is always dropped, even from a full bucket. 1: the class has less than 1% of the stream's rate.", unit: "none", width: 8,
			queries: []query{{expr: `sort(min by (stream, class) (spillway_class_burst{@class}` + limited + `))`, legend: "{{stream}} {{class}}"}}},
	}
}

func withoutBudget() []panel {
	droppedNow := dropped(byClass, "@class, ", panelWindow)
	return []panel{
		{kind: lines, title: "Default Class Share, by stream", about: "The part of a stream's offered items that matched no class of its own.", unit: "percent", width: 6, max: 100,
			queries: []query{{expr: `100 * ` + offered("stream", `@stream, class="default", `, panelWindow) + ` / (` + offered("stream", "@stream, ", panelWindow) + ` > 0)`, legend: "{{stream}}"}}},
		{kind: cells, title: "Unconfigured", about: "Rules name these classes, the policy does not define them: everything that they match is dropped.", unit: "short", width: 6,
			columns: []column{{title: "Dropped /s", unit: "short", steps: []step{{0.001, "red"}}}},
			queries: []query{{expr: droppedNow + ` and on (stream, class) min by (stream, class) (spillway_class_configured{@class}) == 0`,
				empty: "good: an installation whose rules all name defined classes has none"}}},
		{kind: cells, title: "Rate 0", about: "The policy gives these classes nothing: everything that they match is dropped, as an intended filter or because nobody has given a new class its rate.", unit: "short", width: 6,
			columns: []column{{title: "Dropped /s", unit: "short", steps: []step{{0.001, "red"}}}},
			queries: []query{{expr: droppedNow + ` and on (stream, class) (sum by (stream, class) (spillway_class_rate_limit{@class}) == 0 and min by (stream, class) (spillway_class_configured{@class}) == 1)`,
				empty: "an installation may have no class with rate 0"}}},
		{kind: areas, title: "Exempt telemetry", about: "Items per second that carry the exempt label. They are never limited: watch that nobody hides behind it.", unit: "short", width: 6,
			queries: []query{{expr: `sum by (stream) (rate(spillway_exempt_items_total{@stream}[$__rate_interval]))`, legend: "{{stream}}"}}},
	}
}

// outcomes draws the conservation law: the areas together are what was received.
func outcomes() []panel {
	return []panel{
		{kind: areas, title: "Outcomes of received items", about: "The areas together are what was received (dashed). Dropped items are lost, refused ones are sent again.", unit: "short", width: 12, limits: "received",
			queries: []query{
				{expr: `sum(rate(spillway_admitted_items_total{@stream}[$__rate_interval]))`, legend: "admitted"},
				{expr: `sum(rate(spillway_exempt_items_total{@stream}[$__rate_interval]))`, legend: "exempt"},
				{expr: `sum by (reason) (rate(spillway_dropped_items_total{@stream}[$__rate_interval]))`, legend: "dropped ({{reason}})"},
				{expr: `sum(rate(spillway_invalid_items_total{@stream}[$__rate_interval]))`, legend: "invalid"},
				{expr: `sum(rate(spillway_refused_items_total{@stream}[$__rate_interval]))`, legend: "refused (sink)"},
				{expr: `sum(rate(spillway_received_items_total{@stream}[$__rate_interval]))`, legend: "received"},
			}},
		{kind: lines, title: "Dropped by a relabel rule", about: "Items per second that the stream's rules drop before they cost a token.", unit: "short", width: 6,
			queries: []query{{expr: `sum by (stream) (rate(spillway_dropped_items_total{@stream, reason="relabel"}[$__rate_interval]))`, legend: "{{stream}}"}}},
		{kind: lines, title: "Invalid, by reason", about: "Items per second whose labels or values break the protocol or the sink's rules. Their neighbours are stored.", unit: "short", width: 6,
			queries: []query{{expr: `sum by (stream, reason) (rate(spillway_invalid_reasons_total{@stream}[$__rate_interval]))`, legend: "{{stream}} {{reason}}",
				empty: "a reason appears with its first invalid item"}}},
	}
}
