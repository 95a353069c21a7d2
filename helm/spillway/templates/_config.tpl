{{/* The configuration file, the connections that it makes, and what contradicts it. */}}

{{- define "spillway.config.check" -}}
{{- $problems := .problems -}}
{{- $values := .root.Values -}}
{{- range $path, $instead := dict "policy_file" "rateControl.policies" "api_keys_file" "apiKeys" "sinks" "sinks" "streams" "streams" -}}
{{- if hasKey $values.config $path -}}
{{- $_ := set $problems "lines" (append $problems.lines (printf "config.%s: the chart writes it; set %s" $path $instead)) -}}
{{- end -}}
{{- end -}}
{{- $server := $values.config.server | default dict -}}
{{- range $path, $instead := dict "http_listen_address" "service.httpPort" "otlp_grpc_listen_address" "otlp.enabled" "otlp_http_listen_address" "otlp.enabled" "tls" "tls" -}}
{{- if hasKey $server $path -}}
{{- $_ := set $problems "lines" (append $problems.lines (printf "config.server.%s: the chart writes it; set %s" $path $instead)) -}}
{{- end -}}
{{- end -}}
{{- if hasKey ($values.config.ingester | default dict) "replica_count" -}}
{{- $_ := set $problems "lines" (append $problems.lines "config.ingester.replica_count: the chart writes it; set ingester.replicaCount") -}}
{{- end -}}
{{- range $stream, $options := $values.streams -}}
{{- if hasKey ($options | default dict) "relabel_configs" -}}
{{- $_ := set $problems "lines" (append $problems.lines (printf "streams.%s.relabel_configs: the chart writes it; set ingester.relabelConfigs.%s" $stream $stream)) -}}
{{- end -}}
{{- $sink := get ($options | default dict) "sink" -}}
{{- if and $sink (not (hasKey $values.sinks $sink)) -}}
{{- $_ := set $problems "lines" (append $problems.lines (printf "streams.%s.sink: there is no sink %q; sinks are: %s" $stream $sink (keys $values.sinks | sortAlpha | join ", " | default "none"))) -}}
{{- end -}}
{{- end -}}
{{- include "spillway.relabel" . -}}
{{- range .twice -}}
{{- $_ := set $problems "lines" (append $problems.lines .) -}}
{{- end -}}
{{- end -}}

{{/*
Sets relabel, the rules by stream, from ingester.relabelConfigs and from the
places under ingester.config, and twice, what is in both.
*/}}
{{- define "spillway.relabel" -}}
{{- $ingester := .root.Values.ingester -}}
{{- $rules := dict -}}
{{- $twice := list -}}
{{- $aggregator := get ($ingester.config.aggregator | default dict) "metric" | default dict -}}
{{- range $stream := list "metrics" "logs" "traces" "events" "rum" -}}
{{- $own := get $ingester.relabelConfigs $stream -}}
{{- $path := printf "ingester.config.%s.relabelConfigs" $stream -}}
{{- $other := get (get $ingester.config $stream | default dict) "relabelConfigs" -}}
{{- if eq $stream "metrics" -}}
{{- $path = "ingester.config.aggregator.metric.relabelConfigs" -}}
{{- $other = $aggregator.relabelConfigs -}}
{{- end -}}
{{- if and $own $other -}}
{{- $twice = append $twice (printf "%s: stands beside ingester.relabelConfigs.%s: keep one of the two" $path $stream) -}}
{{- end -}}
{{- with $own | default $other -}}
{{- $_ := set $rules $stream . -}}
{{- end -}}
{{- end -}}
{{- $_ := set . "relabel" $rules -}}
{{- $_ := set . "twice" $twice -}}
{{- end -}}

{{/* What of the configuration is read at start only: a change of it restarts the pods. */}}
{{- define "spillway.config.static" -}}
{{- $config := deepCopy .Values.config -}}
{{- $server := deepCopy ($config.server | default dict) -}}
{{- $_ := set $server "http_listen_address" ":9900" -}}
{{- /* An empty address switches a listener off. */ -}}
{{- $_ := set $server "otlp_grpc_listen_address" (.Values.otlp.enabled | ternary ":4317" "") -}}
{{- $_ := set $server "otlp_http_listen_address" (.Values.otlp.enabled | ternary ":4318" "") -}}
{{- if .Values.tls.existingSecret -}}
{{- $tls := dict "cert_file" "/etc/spillway/tls/tls.crt" "key_file" "/etc/spillway/tls/tls.key" -}}
{{- if .Values.tls.clientCA -}}
{{- $_ := set $tls "client_ca_file" "/etc/spillway/tls/ca.crt" -}}
{{- end -}}
{{- $_ := set $server "tls" $tls -}}
{{- end -}}
{{- $_ := set $config "server" $server -}}
{{- $ingester := deepCopy ($config.ingester | default dict) -}}
{{- $_ := set $ingester "replica_count" (int64 (include "spillway.replicas" .)) -}}
{{- $_ := set $config "ingester" $ingester -}}
{{- $_ := set $config "policy_file" "/etc/spillway/policy/policy.yaml" -}}
{{- if include "spillway.keysSecret" . -}}
{{- $_ := set $config "api_keys_file" (printf "/etc/spillway/keys/%s" (empty .Values.apiKeys.existingSecret | ternary "keys.yaml" .Values.apiKeys.existingSecretKey)) -}}
{{- end -}}
{{- with .Values.sinks -}}
{{- $_ := set $config "sinks" (deepCopy .) -}}
{{- end -}}
{{- toYaml $config -}}
{{- end -}}

{{/* What of it is reloaded: the streams with their relabel rules. */}}
{{- define "spillway.config.streams" -}}
{{- $holder := dict "root" . -}}
{{- include "spillway.relabel" $holder -}}
{{- $streams := dict -}}
{{- range $stream := list "metrics" "logs" "traces" "events" "rum" -}}
{{- $options := deepCopy (get $.Values.streams $stream | default dict) -}}
{{- with get $holder.relabel $stream -}}
{{- $_ := set $options "relabel_configs" (deepCopy .) -}}
{{- end -}}
{{- if $options -}}
{{- $_ := set $streams $stream $options -}}
{{- end -}}
{{- end -}}
{{- if $streams -}}
{{- toYaml (dict "streams" $streams) -}}
{{- end -}}
{{- end -}}

{{/*
Sets connections: for each sink that forwards, how many connections one ingester
may make to one endpoint or broker. 64 and 32 are the program's defaults.
*/}}
{{- define "spillway.connections" -}}
{{- $found := dict -}}
{{- range $name, $sink := .root.Values.sinks -}}
{{- range $kind, $options := $sink -}}
{{- if not (kindIs "map" $options) -}}
{{- else if hasKey $options "endpoints" -}}
{{- $_ := set $found $name (int64 (get $options "max_connections_per_endpoint" | default 64)) -}}
{{- else if hasKey $options "brokers" -}}
{{- $_ := set $found $name (int64 (get $options "max_connections_per_broker" | default 32)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $_ := set . "connections" $found -}}
{{- end -}}

{{- define "spillway.connections.check" -}}
{{- $problems := .problems -}}
{{- $n := .replicas -}}
{{- include "spillway.connections" . -}}
{{- $found := .connections -}}
{{- range $name, $budget := .root.Values.connectionBudgets -}}
{{- if not (hasKey $found $name) -}}
{{- $_ := set $problems "lines" (append $problems.lines (printf "connectionBudgets.%s: no sink of that name makes connections; those that do are: %s" $name (keys $found | sortAlpha | join ", " | default "none"))) -}}
{{- else if gt (mul $n (get $found $name)) (int64 $budget) -}}
{{- $each := get $found $name -}}
{{- $_ := set $problems "lines" (append $problems.lines (printf "connectionBudgets.%s: %d ingesters x %d connections are %d to each endpoint, %d more than its budget %d: let sinks.%s make at most %d from each ingester, or raise the budget" $name $n $each (mul $n $each) (sub (mul $n $each) (int64 $budget)) (int64 $budget) $name (div (int64 $budget) $n))) -}}
{{- end -}}
{{- end -}}
{{- end -}}
