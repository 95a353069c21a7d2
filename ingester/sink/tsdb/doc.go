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
package tsdb
