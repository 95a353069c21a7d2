// Package otlp receives the OpenTelemetry protocol 1.9 over gRPC and HTTP, and is the
// way in for what other receivers turn into log records. OTLP.md says what users see.
//
// A request is walked, not unmarshalled. It is a tree: resources, scopes, perhaps
// metrics, items. The walker goes through its bytes once, notes where each message lies
// (Batch.Containers) and each item (Batch.Groups), checks every field that a decoder
// would look at, and writes for each item a key behind the message: the labels that the
// stream's rules can see (ingester.View), sorted, as remote write 1.0 encodes them. An
// item without such a label of its own shares the key of what is around it.
//
//	receiver.go   the options, and Records for other receivers
//	http.go       OTLP over HTTP, protobuf and JSON; JSON becomes protobuf by pdata first
//	grpc.go       OTLP over gRPC: the frame around a message, the methods
//	answer.go     partial success, Status, RetryInfo
//	walk.go       the tree down to log records and spans
//	points.go     metrics and their data points
//	around.go     the labels of resources and scopes
//	own.go        the labels that come from an item's own fields
//	item.go       one item: its fields, its attributes
//	value.go      attribute values, UTF-8, depth
//	shapes.go     which fields a message has
//	naming.go     attribute names to label names, remembered
//	labels.go     label lists, keys
//
// What is wrong inside an item makes that item invalid; inside a resource, scope or
// metric, all items in it. Only a tree whose items cannot be told apart is refused as a
// whole. A request of which the walker finds nothing invalid can be read by pdata: a
// fuzz target holds the two against each other.
//
// A walker is borrowed for one request, and knows the names of attributes that it has
// seen under one view, in a bounded number. It is used by one goroutine.
package otlp
