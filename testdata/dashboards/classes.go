package main

// classRules are the sums over ingesters that alerts and users' own rules start
// from, for each installation, stream and class.
func classRules() []rule {
	return []rule{
		{record: "class:spillway_offered_items:rate5m", expr: offered("@class", "", "5m")},
		{record: "class:spillway_dropped_items:rate5m", expr: dropped("@class", "", "5m")},
		{record: "class:spillway_admitted_items:rate5m", expr: `sum by (@class) (rate(spillway_admitted_items_total[5m]))`},
		{record: "class:spillway_rate_limit:sum", expr: `sum by (@class) (spillway_class_rate_limit)`},
	}
}
