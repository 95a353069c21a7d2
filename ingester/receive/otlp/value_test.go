package otlp

import (
	"bytes"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// TestValidUTF8 agrees with the standard library wherever in a text of any length the
// one byte above ASCII stands.
func TestValidUTF8(t *testing.T) {
	for n := range 40 {
		plain := bytes.Repeat([]byte("a"), n)
		require.True(t, validUTF8(plain))
		for at := range n {
			for _, odd := range []string{"\xff", "é", "\xc3"} {
				text := append(append(bytes.Clone(plain[:at]), odd...), plain[at+1:]...)
				require.Equal(t, utf8.Valid(text), validUTF8(text), "%q", text)
			}
		}
	}
}
