package remotewrite

import (
	"errors"
	"fmt"

	"github.com/spillway-telemetry/spillway/ingester"
	"github.com/spillway-telemetry/spillway/ingester/sink"
)

// Options is the configuration of one sink of this kind:
//
//	remote_write:
//	  endpoints: [https://mimir-1/api/v1/push, https://mimir-2/api/v1/push]
//	  protobuf_message: io.prometheus.write.v2.Request
//	  timeout: 10s
//	  max_connections_per_endpoint: 64
//	  headers: {X-Scope-OrgID: platform}
//	  authorization: {credentials_file: /etc/spillway/token}
//	  tls_config: {ca_file: /etc/spillway/ca.pem}
//
// It is read from YAML with DefaultOptions underneath. Decode it strictly, so that
// an unknown field is an error, and call Validate.
type Options struct {
	sink.HTTPOptions `yaml:",inline"`

	// ProtobufMessage is the message to send: prometheus.WriteRequest for remote
	// write 1.0, io.prometheus.write.v2.Request for 2.0. A batch that came in with
	// the other one is converted, which costs time and what 1.0 cannot hold.
	// Default: prometheus.WriteRequest, which every receiver understands.
	ProtobufMessage string `yaml:"protobuf_message"`
}

// The values of Options.ProtobufMessage.
const (
	MessageV1 = "prometheus.WriteRequest"
	MessageV2 = "io.prometheus.write.v2.Request"
)

// DefaultOptions are the options of which nothing was set.
func DefaultOptions() Options {
	return Options{HTTPOptions: sink.DefaultHTTPOptions(), ProtobufMessage: MessageV1}
}

// UnmarshalYAML decodes the options over DefaultOptions. It has the form in which
// a strict decoder stays strict.
func (o *Options) UnmarshalYAML(unmarshal func(any) error) error {
	*o = DefaultOptions()
	type optionsFields Options
	return unmarshal((*optionsFields)(o))
}

// Validate reports every problem of the options, each with the field as the user
// wrote it. It changes nothing.
func (o *Options) Validate() error {
	errs := o.Problems("http://mimir:9009/api/v1/push")
	if o.ProtobufMessage != MessageV1 && o.ProtobufMessage != MessageV2 {
		errs = append(errs, fmt.Errorf("protobuf_message is %q: it must be %s or %s", o.ProtobufMessage, MessageV1, MessageV2))
	}
	return errors.Join(errs...)
}

// format is the format of the batches that need no conversion.
func (o *Options) format() ingester.Format {
	if o.ProtobufMessage == MessageV2 {
		return ingester.RemoteWrite2
	}
	return ingester.RemoteWrite1
}
