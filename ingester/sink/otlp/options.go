package otlp

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spillway-telemetry/spillway/ingester/sink"
)

// Options is the configuration of one sink of this kind:
//
//	otlp:
//	  protocol: grpc
//	  endpoints: [http://collector-1:4317, http://collector-2:4317]
//	  compression: zstd
//
// Decode it strictly over DefaultOptions, and call Validate.
type Options struct {
	sink.HTTPOptions `yaml:",inline"`

	// Protocol is http/protobuf or grpc. With http/protobuf /v1/metrics, /v1/logs or
	// /v1/traces is put behind the endpoint's path. For grpc an address that starts with
	// https:// uses TLS, one with http:// does not. Default: http/protobuf.
	Protocol string `yaml:"protocol"`

	// Compression is what messages are compressed with that do not leave as they came:
	// gzip, zstd or none. Default: gzip, which every receiver understands.
	Compression string `yaml:"compression"`

	// AcceptedEncodings lists what the destination can read beside compression: gzip,
	// zstd. A batch of which nothing was dropped or changed leaves as it came if its
	// encoding is among them, without being compressed again. Default: none.
	AcceptedEncodings []string `yaml:"accepted_encodings,omitempty"`
}

// The values of Options.Protocol.
const (
	ProtocolHTTP = "http/protobuf"
	ProtocolGRPC = "grpc"
)

// DefaultOptions are the options of which nothing was set.
func DefaultOptions() Options {
	return Options{HTTPOptions: sink.DefaultHTTPOptions(), Protocol: ProtocolHTTP, Compression: "gzip"}
}

// Validate reports every problem of the options, each with the field as the user
// wrote it. It changes nothing.
func (o *Options) Validate() error {
	errs := o.Problems("http://collector:4318")
	if o.Protocol != ProtocolHTTP && o.Protocol != ProtocolGRPC {
		errs = append(errs, fmt.Errorf("protocol is %q: it must be %s or %s", o.Protocol, ProtocolHTTP, ProtocolGRPC))
	}
	if !slices.Contains([]string{"gzip", "zstd", "none"}, o.Compression) {
		errs = append(errs, fmt.Errorf("compression is %q: it must be gzip, zstd or none", o.Compression))
	}
	for i, encoding := range o.AcceptedEncodings {
		if encoding != "gzip" && encoding != "zstd" {
			errs = append(errs, fmt.Errorf("accepted_encodings[%d] is %q: it must be gzip or zstd", i, encoding))
		}
	}
	return errors.Join(errs...)
}
