// Package fluent receives what Fluent Bit's and Fluentd's http outputs send: JSON
// objects in an array, one per line, or simply one behind the other.
//
// A record becomes an OTLP log record:
//
//	log, message, msg, MESSAGE          body, the first that is a string
//	date, @timestamp, timestamp, time   time, the first that can be read as one
//	level, severity, loglevel, ...      severity; it stays an attribute, too
//	kubernetes                          resource attributes, flattened: kubernetes.pod_name
//	Fluent-Tag header, or ?tag=         resource attribute fluent.tag
//	everything else                     record attributes, flattened with dots
//
// A record that is no object is invalid, the others are stored, and the answer is 200
// all the same: neither sender could do anything with another. So is a line that is no
// JSON among lines that are. A body in which there is no JSON, and an array that is torn,
// are 400, and nothing of them is stored.
package fluent
