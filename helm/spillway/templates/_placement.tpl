{{/* Where pods run: what the values say, and the node role where there are roles. */}}
{{- define "spillway.placement" -}}
{{- $selector := .Values.nodeSelector -}}
{{- $tolerations := .Values.tolerations -}}
{{- $roles := .Values.global.kfRoles -}}
{{- $role := .Values.ingester.kfRole -}}
{{- $known := false -}}
{{- if kindIs "map" $roles -}}
{{- $known = hasKey $roles $role -}}
{{- else if $roles -}}
{{- $known = has $role $roles -}}
{{- end -}}
{{- if $known -}}
{{- $selector = merge (deepCopy $selector) (dict "kf_role" $role) -}}
{{- $tolerations = append $tolerations (dict "key" "kf_role" "operator" "Equal" "value" $role) -}}
{{- end -}}
{{- with $selector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if .Values.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- range .Values.topologySpreadConstraints }}
  {{- $own := dict "labelSelector" (dict "matchLabels" (include "spillway.selectorLabels" $ | fromYaml)) }}
  {{- list (merge (deepCopy .) $own) | toYaml | nindent 2 }}
  {{- end }}
{{- end }}
{{- end -}}
