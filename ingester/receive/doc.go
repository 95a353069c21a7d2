// Package receive is the front that the HTTP receivers share: everything between a
// request's header and its decoded bytes, and the answers to requests that end on
// the way.
//
//	front := &receive.Front{Ingester: in, Limits: limits, ForwardHeaders: names}
//	mux.Handle("/loki/api/v1/push", front.Handler(receive.Protocol{
//		Stream: ingester.Logs,
//		Handle: func(rw http.ResponseWriter, req *receive.Request) { ... },
//	}))
//
// Front.Handler takes each request through these steps and calls Protocol.Handle
// with the result. Every refusal goes through Protocol.Refuse, which is plain text
// where a protocol does not say otherwise.
//
//	check         method, then what Protocol.Check says of the headers   405, 415, ...
//	authenticate  the API key, before a byte of the body is read         401, 403
//	read          the body, within its limit and the budget of memory    413, 400, 429 or 503
//	slot          the governor's, held until Handle has returned         429 or 503
//	decompress    gzip, zstd, deflate (with or without zlib's header), snappy (block or
//	              framed), identity; within the limit and the budget     400, 413, 415
//	Handle        decode, process, answer
//
// What Handle gets is a Request: Batch has Stream, Origin, Headers and Received set,
// Body[:Size] is the decompressed message, Packed and Encoding the message as it
// came. Handle does one of two things:
//
//   - A protocol whose messages the sinks know (remote write, OTLP) walks the body,
//     fills Batch.Format and Batch.Groups, and calls req.Process.
//
//   - A protocol that becomes OTLP log records inside appends ExportLogsServiceRequest
//     bytes to req.Scratch[:0] (memory for what grows with the request comes from
//     req.Memory.Grow first) and hands them on:
//
//     result, refusal := receiver.Records(req, ingester.Logs, message, otlp.EachRecord)
//
//     receiver is the *otlp.Receiver that cmd made; the stream is logs, events or rum;
//     otlp.OneGroup instead of EachRecord lets the whole message take its tokens at
//     once (its cost is the number of records, its labels are those of resource and scope).
//     A refusal is for req.Refuse(rw, refusal). Records counts every item.
//
// Both give an ingester.Result, which the protocol answers; Failed(&result) turns one
// whose sink failed into a refusal to answer with req.Answer (the batch is counted
// already). A message that cannot be read is req.Refuse(rw, Malformed(err)), which
// counts the batch as unread.
//
// A Request and all bytes in it are valid until Handle returns.
package receive
