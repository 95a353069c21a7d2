{{/*
The policy: the rules of POLICY.md that a schema cannot say, so that a policy
that spillway check policy would refuse stops the installation. A test holds
these templates against the program's own reader of policies.
*/}}

{{- define "spillway.policy.check" -}}
{{- $problems := .problems -}}
{{- range $stream, $policy := .root.Values.rateControl.policies -}}
{{- if not (kindIs "invalid" $policy) -}}
{{- $path := printf "rateControl.policies.%s" $stream -}}
{{- include "spillway.policy.numbers" (dict "policy" $policy "path" $path "problems" $problems) -}}
{{- include "spillway.policy.names" (dict "policy" $policy "path" $path "problems" $problems) -}}
{{- include "spillway.policy.sum" (dict "policy" $policy "path" $path "problems" $problems) -}}
{{- include "spillway.policy.rules" (dict "rules" $policy.rules "path" $path "problems" $problems) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Sets budgets: for each class, default first if there is one, its name, path, and what the values say. */}}
{{- define "spillway.policy.budgets" -}}
{{- $path := .path -}}
{{- $out := list -}}
{{- if hasKey .policy "default" -}}
{{- $out = append $out (dict "name" "default" "path" (printf "%s.default" $path) "class" (.policy.default | default dict)) -}}
{{- end -}}
{{- range $i, $class := .policy.classes -}}
{{- $out = append $out (dict "name" $class.name "path" (printf "%s.classes[%d]" $path $i) "class" $class) -}}
{{- end -}}
{{- $_ := set . "budgets" $out -}}
{{- end -}}

{{- define "spillway.policy.numbers" -}}
{{- $problems := .problems -}}
{{- include "spillway.number.check" (dict "value" .policy.rate "path" (printf "%s.rate" .path) "problems" $problems) -}}
{{- include "spillway.policy.budgets" . -}}
{{- range .budgets -}}
{{- if and (hasKey .class "rate") (hasKey .class "percent") -}}
{{- $_ := set $problems "lines" (append $problems.lines (printf "%s.percent: stands beside a rate: keep one of the two" .path)) -}}
{{- else if hasKey .class "rate" -}}
{{- include "spillway.number.check" (dict "value" .class.rate "path" (printf "%s.rate" .path) "problems" $problems) -}}
{{- else if hasKey .class "percent" -}}
{{- include "spillway.number.check" (dict "value" .class.percent "path" (printf "%s.percent" .path) "problems" $problems) -}}
{{- else -}}
{{- $_ := set $problems "lines" (append $problems.lines (printf "%s: has no rate: write rate, in items per second, or percent, of the cap's rate" .path)) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "spillway.policy.names" -}}
{{- $problems := .problems -}}
{{- $path := .path -}}
{{- $seen := dict -}}
{{- range $i, $class := .policy.classes -}}
{{- $at := printf "%s.classes[%d].name" $path $i -}}
{{- $name := $class.name -}}
{{- if eq $name "kfuse_cp_class" -}}
{{- $_ := set $problems "lines" (append $problems.lines (printf "%s: is kfuse_cp_class: that class is never limited and only exempt telemetry belongs to it, take another name" $at)) -}}
{{- else if eq $name "default" -}}
{{- $_ := set $problems "lines" (append $problems.lines (printf "%s: is default: give that class its rate under the stream's own field default" $at)) -}}
{{- else if not (regexMatch "^[a-zA-Z0-9_.-]+$" $name) -}}
{{- $_ := set $problems "lines" (append $problems.lines (printf "%s: is %q: a class name consists of letters, digits and _ . -" $at $name)) -}}
{{- else if hasKey $seen $name -}}
{{- $_ := set $problems "lines" (append $problems.lines (printf "%s: is %s, as classes[%d]: names are unique" $at $name (get $seen $name))) -}}
{{- else -}}
{{- $_ := set $seen $name $i -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/*
The rates of all classes against the cap, in millionths. With P the sum of the
percentages, rates + P x cap <= cap is rates <= floor((100% - P) x cap), since
rates are whole millionths.
*/}}
{{- define "spillway.policy.sum" -}}
{{- include "spillway.policy.budgets" . -}}
{{- $cap := int64 (include "spillway.micro" .policy.rate) -}}
{{- $rates := int64 0 -}}
{{- $percents := int64 0 -}}
{{- $terms := list -}}
{{- range .budgets -}}
{{- if hasKey .class "rate" -}}
{{- $rate := int64 (include "spillway.micro" .class.rate) -}}
{{- /* The sum stands still far above any cap, where int64 still holds it. */ -}}
{{- $rates = min (add $rates $rate) 4000000000000000000 -}}
{{- $terms = append $terms (printf "%s %s" .name (include "spillway.decimal" $rate)) -}}
{{- else if hasKey .class "percent" -}}
{{- $percent := int64 (include "spillway.micro" .class.percent) -}}
{{- $percents = add $percents $percent -}}
{{- $terms = append $terms (printf "%s %s%%" .name (include "spillway.decimal" $percent)) -}}
{{- end -}}
{{- end -}}
{{- $left := int64 0 -}}
{{- if and $cap (le $percents 100000000) -}}
{{- $left = int64 (include "spillway.micro.scaled" (dict "parts" (sub 100000000 $percents) "of" $cap)) -}}
{{- end -}}
{{- if or (gt $rates $left) (and $cap (gt $percents 100000000)) -}}
{{- $sum := join " + " $terms -}}
{{- if not $percents -}}
{{- $sum = printf "%s = %s items per second, %s more than the cap's rate %s" $sum (include "spillway.decimal" $rates) (include "spillway.decimal" (sub $rates $cap)) (include "spillway.decimal" $cap) -}}
{{- else -}}
{{- $sum = printf "%s, more than the cap's rate %s" $sum (include "spillway.decimal" $cap) -}}
{{- end -}}
{{- $_ := set .problems "lines" (append .problems.lines (printf "%s.rate: the classes have %s; lower a class or raise the cap" .path $sum)) -}}
{{- end -}}
{{- end -}}

{{- define "spillway.policy.rules" -}}
{{- $problems := .problems -}}
{{- $path := .path -}}
{{- range $i, $rule := .rules -}}
{{- $at := printf "%s.rules[%d]" $path $i -}}
{{- if eq $rule.class "kfuse_cp_class" -}}
{{- $_ := set $problems "lines" (append $problems.lines (printf "%s.class: is kfuse_cp_class: that class is never limited and only exempt telemetry belongs to it, take another name" $at)) -}}
{{- else if not (regexMatch "^[a-zA-Z0-9_.-]+$" $rule.class) -}}
{{- $_ := set $problems "lines" (append $problems.lines (printf "%s.class: is %q: a class name consists of letters, digits and _ . -" $at $rule.class)) -}}
{{- end -}}
{{- if not $rule.matchers -}}
{{- $_ := set $problems "lines" (append $problems.lines (printf "%s: has no matchers and would take every item: give it some, or leave the items to default" $at)) -}}
{{- end -}}
{{- range $j, $matcher := $rule.matchers -}}
{{- $problem := include "spillway.matcher.problem" $matcher -}}
{{- if $problem -}}
{{- $_ := set $problems "lines" (append $problems.lines (printf "%s.matchers[%d]: is %q: %s" $at $j $matcher $problem)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/*
What is wrong with a Prometheus matcher, nothing if it is valid. The escapes are
Go's; a bad one must not reach tpl, which would end the render without saying
where.
*/}}
{{- define "spillway.matcher.problem" -}}
{{- $escape := `\\(?:[abfnrtv\\%s]|[0-3][0-7]{2}|x[0-9a-fA-F]{2}|u(?:[0-9a-cefA-CEF][0-9a-fA-F]{3}|[dD][0-7][0-9a-fA-F]{2})|U(?:0000(?:[0-9a-cefA-CEF][0-9a-fA-F]{3}|[dD][0-7][0-9a-fA-F]{2})|000[1-9a-fA-F][0-9a-fA-F]{4}|0010[0-9a-fA-F]{4}))` -}}
{{- $double := printf `"(?:[^"\\\n\x{FFFD}]|%s)*"` (printf $escape `"`) -}}
{{- $single := printf `'(?:[^'\\\n\x{FFFD}]|%s)*'` (printf $escape `'`) -}}
{{- $string := printf "(?:%s|%s|`[^`\\x{FFFD}]*`)" $double $single -}}
{{- $space := `[ \t\r\n]*` -}}
{{- $shape := printf `^%s([a-zA-Z_][a-zA-Z0-9_]*|%s)%s(=~|!~|!=|=)%s(%s)%s$` $space $string $space $space $string $space -}}
{{- if not (regexMatch $shape .) -}}
write one label name (in quotes if it has other characters than letters, digits and _), one of = != =~ !~, and one value in quotes, as in 'team="a"'
{{- else -}}
{{- $name := include "spillway.unquoted" (regexReplaceAll $shape . "${1}") -}}
{{- $value := include "spillway.unquoted" (regexReplaceAll $shape . "${3}") -}}
{{- if or (eq $name "") (not (regexMatch (printf "|%s" (regexQuoteMeta $name)) "")) -}}
the label name is empty or not valid UTF-8
{{- else if and (contains "~" (regexReplaceAll $shape . "${2}")) (not (regexMatch (printf "|%s" $value) "")) -}}
the value is not a regular expression (RE2)
{{- end -}}
{{- end -}}
{{- end -}}

{{/*
What a string literal says; what is no literal, as it is. The literal has been
checked, so that tpl sees one string and nothing else. A literal in single
quotes is rewritten into one in double quotes.
*/}}
{{- define "spillway.unquoted" -}}
{{- if not (regexMatch "^[\"'`]" .) -}}
{{- . -}}
{{- else if not (contains `\` .) -}}
{{- regexReplaceAll `(?s)^.(.*).$` . "${1}" -}}
{{- else if hasPrefix "'" . -}}
{{- $text := "" -}}
{{- range regexFindAll `(?s)\\.|[^\\]` (trimSuffix "'" (trimPrefix "'" .)) -1 -}}
{{- if eq . `\'` -}}{{- $text = printf "%s'" $text -}}
{{- else if eq . `"` -}}{{- $text = printf `%s\"` $text -}}
{{- else -}}{{- $text = printf "%s%s" $text . -}}
{{- end -}}
{{- end -}}
{{- tpl (printf `{{ "%s" }}` $text) dict -}}
{{- else -}}
{{- tpl (printf "{{ %s }}" .) dict -}}
{{- end -}}
{{- end -}}

{{/* The policy file. Numbers are written out, so that no reader sees 1e+06. */}}
{{- define "spillway.policy.file" -}}
{{- $streams := dict -}}
{{- range $stream, $policy := .Values.rateControl.policies -}}
{{- if not (kindIs "invalid" $policy) -}}{{- $_ := set $streams $stream $policy -}}{{- end -}}
{{- end -}}
{{- if not $streams -}}
streams: {}
{{- else -}}
streams:
{{- range $stream, $policy := $streams }}
  {{ $stream }}:
    rate: {{ include "spillway.decimal" (int64 (include "spillway.micro" $policy.rate)) }}
    burst: {{ int64 $policy.burst }}
    {{- with $policy.default }}
    default: {{ "{" }}{{ include "spillway.policy.budget" . }}{{ "}" }}
    {{- end }}
    {{- with $policy.classes }}
    classes:
      {{- range . }}
      - {name: {{ .name | quote }}, {{ include "spillway.policy.budget" . }}}
      {{- end }}
    {{- end }}
    {{- with $policy.rules }}
    rules:
      {{- range . }}
      - class: {{ .class | quote }}
        matchers:
          {{- toYaml .matchers | nindent 10 }}
      {{- end }}
    {{- end }}
{{- end }}
{{- end -}}
{{- end -}}

{{- define "spillway.policy.budget" -}}
{{- if hasKey . "rate" -}}
rate: {{ include "spillway.decimal" (int64 (include "spillway.micro" .rate)) }}
{{- else -}}
percent: {{ include "spillway.decimal" (int64 (include "spillway.micro" .percent)) }}
{{- end -}}
{{- end -}}
