package remotewrite

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-telemetry/spillway/ingester/sink"
)

// Headers of the protocols.
const (
	versionHeader           = "X-Prometheus-Remote-Write-Version"
	samplesWrittenHeader    = "X-Prometheus-Remote-Write-Samples-Written"
	histogramsWrittenHeader = "X-Prometheus-Remote-Write-Histograms-Written"
	exemplarsWrittenHeader  = "X-Prometheus-Remote-Write-Exemplars-Written"
)

// answer is what a receiver answered.
type answer struct {
	sink.Answer
	// written is what a 2.0 receiver counted; counted says that it did.
	written written
	counted bool
}

// written is the content of the Written headers.
type written struct{ samples, histograms, exemplars int64 }

func (w written) any() bool { return w.samples > 0 || w.histograms > 0 || w.exemplars > 0 }

// judge reads a response. text is the start of its body, v2 says that the request
// was a 2.0 request.
func judge(status int, header http.Header, text string, v2 bool, now time.Time) answer {
	a := answer{Answer: sink.JudgeStatus(status, header, text, now)}
	if v2 {
		a.written, a.counted = readWritten(header)
	}
	said := sink.Said(status, text)
	switch {
	case status/100 == 2 && v2 && !a.counted:
		// The fault is in this sink's configuration, so the batch must not be lost
		// for it.
		a.Outcome = sink.Misconfigured
		a.Err = fmt.Errorf("%w, but without the %s header: it does not understand remote write 2.0 and has stored nothing; set protobuf_message: %s for this sink", said, samplesWrittenHeader, MessageV1)
	case status == http.StatusBadRequest && a.written.any():
		a.Outcome, a.Err = sink.Stored, said
	case status == http.StatusUnsupportedMediaType:
		a.Err = fmt.Errorf("%w: it does not accept this message; set protobuf_message: %s for this sink", said, otherMessage(v2))
	}
	return a
}

func otherMessage(v2 bool) string {
	if v2 {
		return MessageV1
	}
	return MessageV2
}

// readWritten reads the Written headers. As 2.0 has it, one that is missing counts
// as 0 if another is there.
func readWritten(h http.Header) (w written, counted bool) {
	for name, n := range map[string]*int64{
		samplesWrittenHeader: &w.samples, histogramsWrittenHeader: &w.histograms, exemplarsWrittenHeader: &w.exemplars,
	} {
		v, err := strconv.ParseInt(strings.TrimSpace(h.Get(name)), 10, 64)
		if err != nil || v < 0 {
			continue
		}
		*n, counted = v, true
	}
	return w, counted
}
