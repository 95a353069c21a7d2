// Package events receives events: by an address of Spillway's own, as Datadog's API and
// its Agent send them, and Kubernetes Event objects.
//
// An event, an object in an array, alone, or one per line, becomes an OTLP log record:
//
//	text, message                    body
//	title                            attribute title
//	time, timestamp, date_happened   time
//	tags                             attributes, one a tag: env:prod is env=prod; an object of names
//	                                 and values will do, too
//	alert_type, level, severity      severity; it stays an attribute, too
//	eventType, event_type, type      event name, and attribute eventType
//	source, source_type_name         attribute source
//	host, hostname                   resource attribute host.name
//	service                          resource attribute service.name
//	everything else                  attributes, flattened with dots
//
// Events need a title or a text. The Agent's msg_title and msg_text count as these, and
// its sourceType, under which it groups events, as source.
//
// An Event of Kubernetes (v1 or events.k8s.io/v1; alone, in a list, or in an object
// of a watch) becomes:
//
//	message, note                         body
//	eventTime, lastTimestamp, ...         time, the latest of what it says
//	type                                  severity, event name and attribute eventType
//	reason, action, count, uid, name      k8s.event.reason, ...
//	involvedObject, regarding             k8s.object.kind, .name, .uid, .api_version, .fieldpath
//	its namespace                         resource attribute k8s.namespace.name
//	reporting component and host          k8s.event.reporting_controller, k8s.node.name
//	always                                source=kubernetes, kube_namespace, kube_kind, kube_name
//
// An event that cannot be read is invalid, the others are stored, and the answer is 202
// with {"status":"ok"}; where nothing can be read it is 400.
package events
