// Package datadog receives logs by Datadog's intake (the Agent, log libraries, Azure's
// log forwarder) and RUM events as the Datadog browser SDK and its forks send them.
//
// A log, an object in an array, alone, or one per line, or a line of plain text,
// becomes an OTLP log record:
//
//	message, msg, log               body, the first that is a string
//	timestamp, @timestamp, date     time, the first that can be read as one
//	status, level, severity         severity; it stays an attribute, too
//	service                         resource attribute service.name
//	hostname, host                  resource attribute host.name
//	ddsource                        resource attribute source
//	ddtags                          resource attributes, one a tag: env:prod is env=prod
//	everything else                 record attributes, flattened with dots
//
// The parameters service, hostname, host, ddsource and ddtags of the address count for
// logs that do not say it themselves, and ddtags of both count together.
//
// A RUM event, an object per line, becomes an OTLP log record:
//
//	type                            event name, and attribute type
//	date                            time
//	error.message                   body, where there is one; it stays an attribute, too
//	service, version                resource attributes service.name, service.version
//	application                     resource attributes, application.id
//	ddsource (or source), ddtags    as above
//	everything else                 record attributes, flattened with dots: view.url
//
// An item that is no object is invalid, the others are stored, and the answer is 202
// with {} for logs, without a body for RUM, as the intake of Datadog does. A body of which
// nothing can be read is 400.
package datadog
