// Command dashboards writes Spillway's Grafana dashboards and its rules for
// Prometheus into the folder dashboards/ of the repository:
//
//	panels (ratecontrol.go, capacity.go, ingester.go) --build.go--> *.json
//	rules  (classes.go, alerts.go, oldnames.go)       --rules.go--> rules/*.yaml, rules/prometheusrule/*.yaml
//
// A panel or a rule is data of this package, so that the tests see every query:
//
//   - make test: the files in the repository are what the code says, and Grafana's,
//     Prometheus' and the Prometheus operator's own types decode them strictly;
//   - make e2e: promtool runs the unit tests of the rules, and every query runs on a real
//     Prometheus that scrapes real Spillways in trouble. A query has to return
//     something other than zero there, or say beside itself why it may not.
//
// What needs Grafana's and Kubernetes' libraries is here, in a module of its own, so that the
// product's module stays lean.
package main
