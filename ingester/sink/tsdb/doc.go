// Package tsdb is the embedded sink for metrics: a Prometheus TSDB in a folder,
// and the Prometheus query API over it.
//
// A batch is appended with the references that its routes remember, so that a
// known series costs no look-up of its labels, and is committed to the write-ahead
// log before its sender hears anything. What Write acknowledged survives the
// process being killed. Batches that wait at the same time share one commit, each
// answered for its own part.
//
// What the database refuses for good (a sample out of order, another value for the
// same time, a histogram that contradicts itself) is rejected item by item, and
// its neighbours are stored. Any other error stores nothing of the batch: it is
// rolled back, the database is opened anew before the next write, and the sender
// comes again.
//
// One case counts as stored and is not: a sample older than the newest one of its
// series, within the out-of-order window, for a time that the series already has a
// sample of. While committing, the database drops it if the other one is in the
// out-of-order chunk being filled (32 samples by default), and else stores both, of which
// a query shows one. It tells nobody which samples those were, and looking
// for each beforehand would cost a query. With the same value it is a repetition, and
// nothing is lost. With another value the sender has two truths for one time and hears
// of no conflict; Prometheus' own receiver answers the same. A second value for the
// newest time of a series, or of the series within one request, is rejected as
// duplicate.
package tsdb
