package policy

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReportJSON(t *testing.T) {
	got, err := json.Marshal(example(t, 4).Report())
	require.NoError(t, err)
	require.Equal(t, `{"streams":{"logs":{"rate":100000,"burst":200000,"ingesters":4,"classes":[`+
		`{"name":"team-a","rate":39500,"share_percent":39,"rate_per_ingester":9875,"burst_per_ingester":19500,"configured":true},`+
		`{"name":"debug","rate":500,"share_percent":0,"rate_per_ingester":125,"burst_per_ingester":1,"configured":true},`+
		`{"name":"default","rate":60000,"share_percent":60,"rate_per_ingester":15000,"burst_per_ingester":30000,"configured":true}],`+
		`"rules":[{"class":"team-a","matchers":["team=\"a\""]},{"class":"debug","matchers":["level=~\"debug|trace\"","env!=\"prod\""]}]}},`+
		`"warnings":["streams.logs.classes[1]: class debug has share 0 (500 is less than 1% of the cap's 100000 items per second), `+
		`hence burst 1 on each ingester, and loses every group of 2 or more items: give it at least 1000 items per second, or lower the cap"]}`,
		string(got))
}

func TestReportHasNoNull(t *testing.T) {
	for file, want := range map[string]string{
		"": `{"streams":{},"warnings":[]}`,
		"streams: {rum: {rate: 1, burst: 300}}": `{"streams":{"rum":{"rate":1,"burst":300,"ingesters":3,"classes":[` +
			`{"name":"default","rate":1,"share_percent":100,"rate_per_ingester":0.3333333333333333,"burst_per_ingester":100,"configured":true}],` +
			`"rules":[]}},"warnings":[]}`,
	} {
		got, err := json.Marshal(load(t, file, 3).Report())
		require.NoError(t, err)
		require.Equal(t, want, string(got))
	}
}

func TestRateText(t *testing.T) {
	for rate, want := range map[float64]string{
		0: "0", 1: "1", 9875: "9875", 0.3333333333: "0.333", 100000.0004: "100000", 0.001: "0.001", 0.0004: "0.0004", 1e15: "1e+15", 1e308: "1e+308",
	} {
		require.Equal(t, want, rateText(rate))
	}
}

type brokenWriter struct{}

var errBroken = errors.New("broken")

func (brokenWriter) Write([]byte) (int, error) { return 0, errBroken }

func TestWriteTextReturnsTheError(t *testing.T) {
	require.ErrorIs(t, example(t, 4).Report().WriteText(brokenWriter{}), errBroken)
}
