{{/*
Exact arithmetic for policies. Templates have int64 and float64, and float64
cannot tell 0.1 + 0.2 from more than 0.3. So rates and percentages are counted
in millionths, as int64: rates up to 10^10 with up to 6 decimals, which the
schema and spillway.number.check hold them to. A product of two such numbers
would not fit; spillway.micro.scaled works it out in two parts that do.
*/}}

{{/* A number in millionths. subf and mulf calculate in decimals, so the fraction is exact. */}}
{{- define "spillway.micro" -}}
{{- $whole := floor . -}}
{{- add (mul (int64 $whole) 1000000) (int64 (mulf (subf . $whole) 1000000)) -}}
{{- end -}}

{{/* Notes a number with more than 6 decimals. Takes value, path, problems. */}}
{{- define "spillway.number.check" -}}
{{- $fraction := mulf (subf .value (floor .value)) 1000000 -}}
{{- if ne $fraction (floor $fraction) -}}
{{- $_ := set .problems "lines" (append .problems.lines (printf "%s: is %v: write it with at most 6 decimals" .path .value)) -}}
{{- end -}}
{{- end -}}

{{/* floor(parts x of / 10^8): of is in millionths, parts in millionths of a percent and at most 10^8. */}}
{{- define "spillway.micro.scaled" -}}
{{- $high := div .of 100000000 -}}
{{- $low := mod .of 100000000 -}}
{{- add (mul .parts $high) (div (mul .parts $low) 100000000) -}}
{{- end -}}

{{/* Millionths as a plain decimal number. */}}
{{- define "spillway.decimal" -}}
{{- $whole := div . 1000000 -}}
{{- $rest := mod . 1000000 -}}
{{- if $rest -}}
{{- printf "%d.%s" $whole (regexReplaceAll "0+$" (printf "%06d" $rest) "") -}}
{{- else -}}
{{- printf "%d" $whole -}}
{{- end -}}
{{- end -}}

{{/* Millionths to three decimals, as the table of spillway check shows rates. */}}
{{- define "spillway.rounded" -}}
{{- include "spillway.decimal" (mul (div (add . 500) 1000) 1000) -}}
{{- end -}}
