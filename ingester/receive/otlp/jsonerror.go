package otlp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// jsonProblem says why a body cannot be read as OTLP's JSON: where it stops being
// JSON, or else what err, of the OTLP library, says of the message.
func jsonProblem(body []byte, err error) error {
	var syntax *json.SyntaxError
	if errors.As(json.Unmarshal(body, &struct{}{}), &syntax) {
		// Offset counts the bytes up to and with the one that is wrong.
		before := body[:max(0, min(int(syntax.Offset)-1, len(body)))]
		line := 1 + bytes.Count(before, []byte("\n"))
		column := len(before) - bytes.LastIndexByte(before, '\n')
		return fmt.Errorf("the body is not valid JSON: line %d, column %d: %w", line, column, syntax)
	}
	// What follows repeats the body, which the sender knows.
	text, _, _ := strings.Cut(err.Error(), ", error found in #")
	return fmt.Errorf("the body is JSON, but not OTLP: %s", text)
}
