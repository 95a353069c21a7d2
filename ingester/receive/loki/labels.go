package loki

import (
	"fmt"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillway-telemetry/spillway/ingester/receive"
)

// parseLabels appends the labels of a stream, which protobuf carries as the text of
// a Prometheus selector. The plain form that every client writes is read here; what
// it does not cover is left to Prometheus' parser.
func parseLabels(dst []label, text string) ([]label, error) {
	if len(text) > maxLabelBytes {
		return nil, errLong
	}
	if plain, ok := parsePlain(dst, text); ok {
		return plain, nil
	}
	ls, err := parser.NewParser(parser.Options{}).ParseMetric(text)
	if err != nil {
		return nil, fmt.Errorf("the labels %.200q of a stream cannot be read: %w", text, err)
	}
	ls.Range(func(l labels.Label) { dst = append(dst, label{l.Name, l.Value}) })
	return dst, nil
}

// parsePlain reads `{name="value", name="value"}` with names of letters, digits and
// underscores and values without escapes.
func parsePlain(dst []label, text string) ([]label, bool) {
	p := plain{text: text}
	if !p.accept('{') {
		return nil, false
	}
	for !p.accept('}') {
		if len(dst) > receive.MaxAttributes {
			return dst, true // and refused
		}
		start := p.at
		for p.at < len(text) && isName(text[p.at], p.at == start) {
			p.at++
		}
		name := text[start:p.at]
		if name == "" || !p.accept('=') || !p.accept('"') {
			return nil, false
		}
		start = p.at
		for p.at < len(text) && text[p.at] != '"' {
			if c := text[p.at]; c == '\\' || c == '\n' || c >= 0x80 {
				return nil, false
			}
			p.at++
		}
		dst = append(dst, label{name, text[start:p.at]})
		if !p.accept('"') {
			return nil, false
		}
		if p.accept(',') {
			p.accept(' ')
		} else if p.at >= len(text) || text[p.at] != '}' {
			return nil, false
		}
	}
	return dst, p.at == len(text)
}

type plain struct {
	text string
	at   int
}

// accept steps over c.
func (p *plain) accept(c byte) bool {
	if p.at < len(p.text) && p.text[p.at] == c {
		p.at++
		return true
	}
	return false
}

func isName(c byte, first bool) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || !first && c >= '0' && c <= '9'
}
