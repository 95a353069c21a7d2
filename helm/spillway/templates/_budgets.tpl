{{/*
What each class may spend, for NOTES.txt, in whole numbers: rates and
percentages in millionths, bursts as POLICY.md calculates them.
*/}}

{{/* The table of one stream. Takes policy and replicas. */}}
{{- define "spillway.budget.table" -}}
{{- $holder := dict "policy" .policy -}}
{{- include "spillway.budget.rows" $holder -}}
{{- printf "  %-24s %14s %7s %22s %20s" "class" "items/s" "share" "items/s per ingester" "burst per ingester" }}
{{- range $holder.rows }}
{{- $burst := int64 0 }}
{{- $note := .note }}
{{- if .some }}
{{- $burst = max 1 (div (mul (int64 $.policy.burst) .share) (mul 100 $.replicas)) }}
{{- if eq $burst 1 }}
{{- $note = "  loses every group of 2 or more" }}
{{- end }}
{{- end }}
{{ printf "  %-24s %14s %7s %22s %20d%s" .name (include "spillway.rounded" .micro) (printf "%d%%" .share) (include "spillway.rounded" (div .micro $.replicas)) $burst $note }}
{{- end }}
{{- end -}}

{{/*
Sets rows: name, micro (the rate), share, note, and some, which tells a rate
below a millionth from none. Order is the program's: default after the classes,
then those that only rules name.
*/}}
{{- define "spillway.budget.rows" -}}
{{- $policy := .policy -}}
{{- $cap := int64 (include "spillway.micro" $policy.rate) -}}
{{- $rows := list -}}
{{- $names := list "default" -}}
{{- $rates := int64 0 -}}
{{- $percents := int64 0 -}}
{{- range $policy.classes -}}
{{- $row := dict "class" . "cap" $cap -}}
{{- include "spillway.budget.row" $row -}}
{{- $rows = append $rows (set $row "name" .name) -}}
{{- $names = append $names .name -}}
{{- $rates = add $rates $row.rate -}}
{{- $percents = add $percents $row.percent -}}
{{- end -}}
{{- $row := dict "class" $policy.default "cap" $cap -}}
{{- if $policy.default -}}
{{- include "spillway.budget.row" $row -}}
{{- else -}}
{{- /* What the classes leave. */ -}}
{{- $parts := max 0 (sub 100000000 $percents) -}}
{{- $micro := max 0 (sub (int64 (include "spillway.micro.scaled" (dict "parts" $parts "of" $cap))) $rates) -}}
{{- $broken := mod (mul $parts (mod $cap 100000000)) 100000000 -}}
{{- $_ := set $row "micro" $micro -}}
{{- $_ := set $row "some" (or (gt $micro 0) (gt $broken 0)) -}}
{{- $_ := set $row "share" (int64 0) -}}
{{- if $row.some -}}
{{- $_ := set $row "share" (int64 (include "spillway.budget.share" (dict "parts" $parts "rates" $rates "cap" $cap))) -}}
{{- end -}}
{{- end -}}
{{- $rows = append $rows (set $row "name" "default") -}}
{{- range $policy.rules -}}
{{- if not (has .class $names) -}}
{{- $names = append $names .class -}}
{{- $rows = append $rows (dict "name" .class "micro" (int64 0) "share" (int64 0) "some" false "note" "  not defined: loses all that its rules match") -}}
{{- end -}}
{{- end -}}
{{- range $rows -}}
{{- $_ := set . "note" (.note | default (.some | ternary "" "  loses everything")) -}}
{{- end -}}
{{- $_ := set . "rows" $rows -}}
{{- end -}}

{{/*
The share of what is left: floor(parts / 10^6 - 100 x rates / cap), whole parts
apart from fractions. The fractions are compared by long division, since their
product would not fit.
*/}}
{{- define "spillway.budget.share" -}}
{{- $whole := sub (div .parts 1000000) (div (mul 100 .rates) .cap) -}}
{{- $left := mod .parts 1000000 -}}
{{- $rest := mod (mul 100 .rates) .cap -}}
{{- $taken := int64 0 -}}
{{- range until 6 -}}
{{- $taken = add (mul 10 $taken) (div (mul 10 $rest) $.cap) -}}
{{- $rest = mod (mul 10 $rest) $.cap -}}
{{- end -}}
{{- if or (lt $left $taken) (and (eq $left $taken) (gt $rest 0)) -}}
{{- sub $whole 1 -}}
{{- else -}}
{{- $whole -}}
{{- end -}}
{{- end -}}

{{/* Sets micro, some and share of a class that has a budget, and its rate or percent, else 0. */}}
{{- define "spillway.budget.row" -}}
{{- $_ := set . "rate" (int64 0) -}}
{{- $_ := set . "percent" (int64 0) -}}
{{- if hasKey .class "rate" -}}
{{- $_ := set . "rate" (int64 (include "spillway.micro" .class.rate)) -}}
{{- $_ := set . "micro" .rate -}}
{{- $_ := set . "some" (gt .rate 0) -}}
{{- $_ := set . "share" (div (mul 100 .rate) (max 1 .cap)) -}}
{{- else -}}
{{- $_ := set . "percent" (int64 (include "spillway.micro" .class.percent)) -}}
{{- $_ := set . "micro" (int64 (include "spillway.micro.scaled" (dict "parts" .percent "of" .cap))) -}}
{{- $_ := set . "some" (and (gt .percent 0) (gt .cap 0)) -}}
{{- $_ := set . "share" (.some | ternary (div .percent 1000000) (int64 0)) -}}
{{- end -}}
{{- end -}}
