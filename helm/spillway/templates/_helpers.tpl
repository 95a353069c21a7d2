{{/* Names. 52 characters leave room for what Kubernetes appends to a StatefulSet's. */}}
{{- define "spillway.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{- define "spillway.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "spillway.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "spillway.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "spillway.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{/* Labels. Values are quoted: a release may be called n, which YAML takes for a boolean. */}}
{{- define "spillway.selectorLabels" -}}
app.kubernetes.io/name: {{ include "spillway.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: "ingester"
{{- end -}}

{{- define "spillway.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" | quote }}
{{ include "spillway.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/*
N: what a policy is divided by, and how many ingesters run. With node roles,
numNodes counts nodes on which no ingester runs.
*/}}
{{- define "spillway.replicas" -}}
{{- $count := .Values.ingester.replicaCount -}}
{{- if not (kindIs "invalid" $count) -}}
{{- int64 $count -}}
{{- else if .Values.global.kfRoles -}}
{{- fail (printf "\ningester.replicaCount is not set, and global.kfRoles is: global.numNodes then counts nodes on which no ingester runs, and every policy would be divided by the wrong number; set ingester.replicaCount to the number of ingesters") -}}
{{- else if not (kindIs "invalid" .Values.global.numNodes) -}}
{{- int64 .Values.global.numNodes -}}
{{- else -}}
1
{{- end -}}
{{- end -}}

{{- define "spillway.replicasFrom" -}}
{{- if not (kindIs "invalid" .Values.ingester.replicaCount) -}}
ingester.replicaCount
{{- else if not (kindIs "invalid" .Values.global.numNodes) -}}
global.numNodes
{{- else -}}
the default; set ingester.replicaCount
{{- end -}}
{{- end -}}

{{- define "spillway.keysSecret" -}}
{{- if .Values.apiKeys.existingSecret -}}
{{- .Values.apiKeys.existingSecret -}}
{{- else if .Values.apiKeys.keys -}}
{{- include "spillway.fullname" . }}-keys
{{- end -}}
{{- end -}}

{{/*
Everything that a value set must pass before anything is rendered. Problems are
collected, so that the user sees all at once.
*/}}
{{- define "spillway.check" -}}
{{- $problems := dict "lines" list -}}
{{- $n := int64 (include "spillway.replicas" .) -}}
{{- if lt $n 1 -}}
{{- $_ := set $problems "lines" (append $problems.lines (printf "%s is %d: there must be 1 ingester or more" (include "spillway.replicasFrom" .) $n)) -}}
{{- end -}}
{{- include "spillway.policy.check" (dict "root" . "problems" $problems) -}}
{{- include "spillway.config.check" (dict "root" . "problems" $problems) -}}
{{- include "spillway.connections.check" (dict "root" . "problems" $problems "replicas" $n) -}}
{{- if and .Values.apiKeys.keys .Values.apiKeys.existingSecret -}}
{{- $_ := set $problems "lines" (append $problems.lines "apiKeys.keys stands beside apiKeys.existingSecret: keep one of the two") -}}
{{- end -}}
{{- if $problems.lines -}}
{{- fail (printf "\n%s" (join "\n" $problems.lines)) -}}
{{- end -}}
{{- end -}}
