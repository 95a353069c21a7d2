package main

// oldNames give Spillway's counts the names and labels under which Kloudfuse's
// ingester exports them, so that alerts and queries written for those go on
// working. The counters stay apart by instance: a sum of counters would jump when
// one process restarts.
func oldNames() []rule {
	named := func(expr string) string {
		return `label_replace(` + expr + `, "kube_cluster_name", "$1", "cluster", "(.+)")`
	}
	own := map[string]string{"kfuse": "true"}
	return []rule{
		{record: "ingester_rate_control_num_events_allowed_count", labels: own,
			expr: named(`(spillway_admitted_items_total or spillway_exempt_items_total)`)},
		{record: "ingester_rate_control_num_events_dropped_count", labels: own,
			expr: named(`sum without (reason) (spillway_dropped_items_total{reason="ratelimit"})`)},
		{record: "ingester_rate_control_configured_rate", labels: own,
			expr: named(`max by (@class) (spillway_class_rate_limit * on (@installation, instance) group_left () spillway_policy_ingesters` +
				` and on (@class, instance) spillway_class_configured == 1)`)},
	}
}
