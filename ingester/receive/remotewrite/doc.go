// Package remotewrite receives Prometheus remote write 1.0 and 2.0
// (https://prometheus.io/docs/specs/prw/remote_write_spec and
// remote_write_spec_2_0).
//
// A request is walked, not unmarshalled: for each series the walker finds where
// in the body its labels, or the references to them, lie, what it costs, and that
// a sink can copy or read the rest without surprise. Nothing is built.
//
//	handler.go   the request from its header to its answer
//	walk_v1.go   prometheus.WriteRequest
//	walk_v2.go   io.prometheus.write.v2.Request
//	shape.go     which fields are well-formed
//	answer.go    the table of answers
//
// What is malformed as a whole (the compression, a message that is cut off) is
// answered 400 and nothing of it counts. What is wrong with one series (its
// labels, its references) makes that series invalid, and its neighbours go on.
package remotewrite
