// Package firehose receives what Amazon Data Firehose (Kinesis) delivers to an HTTP
// endpoint: CloudWatch Logs, as their subscription filters send them, and lines of
// other producers.
//
// A record's data is base64 of a CloudWatch Logs message, compressed with gzip or
// already decompressed, or of lines of text. Each log event, or line, becomes an OTLP
// log record:
//
//	message                          body
//	timestamp                        time; lines have none
//	id                               record attribute aws.log.event.id
//	owner                            cloud.account.id
//	logGroup, logStream              aws.log.group.name, aws.log.stream.name
//	subscriptionFilters              aws.log.subscription_filters
//	X-Amz-Firehose-Common-Attributes resource attributes, names as they are
//	X-Amz-Firehose-Source-Arn        resource attribute aws.firehose.arn
//	always                           resource attributes cloud.provider=aws, source=cloudwatch or firehose
//
// Control messages of CloudWatch are no items. A request is one group: all its lines are
// allowed or dropped together, and rules see the labels that all of its lines have in common. So the
// attributes without a place above are the resource's where they are the same throughout the
// request, else the record's.
//
// A record whose data cannot be read is invalid, as one item, and the others are stored.
// The answer is the JSON that Firehose demands, with the request's id and errorMessage.
package firehose
