// Package elasticsearch receives logs by Elasticsearch's bulk API, as Filebeat,
// Fluent Bit, Logstash, rsyslog and the official clients send it, and answers what
// these ask a server before they send: what it is, its license, whether templates,
// policies and pipelines are there.
//
// A document becomes an OTLP log record:
//
//	message, log, msg                  body, the first that is a string
//	@timestamp, timestamp, time        time, the first that can be read as one
//	log.level, level, severity         severity; it stays an attribute, too
//	agent, cloud, container, ecs,      resource attributes, flattened: host.name,
//	host, kubernetes, orchestrator,    kubernetes.pod.name
//	observer, service, data_stream
//	_index of the action, or the path  resource attribute elasticsearch.index
//	_id of the action                  record attribute elasticsearch.id
//	everything else                    record attributes, flattened with dots
//
// Each action has an item in the answer, in order: 201 for what is stored or dropped
// for good by rate control or relabel rules, since a sender that saw another status
// would send it again or call it an error; 400 for a document that cannot be read and
// for actions that are no log (delete). When the sink is down or there is no capacity
// the whole request is answered 503 or 429, and the sender sends all of it again.
package elasticsearch
