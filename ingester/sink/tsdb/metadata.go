package tsdb

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/prometheus/common/model"
	prommeta "github.com/prometheus/prometheus/model/metadata"
)

const (
	// familiesFile lies in the data folder, where the database ignores it.
	familiesFile = "metadata.jsonl"
	// maxVariants is how many different texts are kept for one family: two
	// releases of a program disagree while one replaces the other. More than a
	// few are a text with a value in it, and would grow without end.
	maxVariants = 8
	// maxMetadataBytes is where a help text or unit is cut.
	maxMetadataBytes = 4096
)

// metricTypes are the types in the order of both protocols' enumerations.
var metricTypes = [...]model.MetricType{
	model.MetricTypeUnknown, model.MetricTypeCounter, model.MetricTypeGauge, model.MetricTypeHistogram,
	model.MetricTypeGaugeHistogram, model.MetricTypeSummary, model.MetricTypeInfo, model.MetricTypeStateset,
}

// metadata is what one message says of a family. Its bytes are the batch's.
type metadata struct {
	family, help, unit []byte
	typ                uint8
}

func (m *metadata) empty() bool { return m.typ == 0 && len(m.help) == 0 && len(m.unit) == 0 }

func (m *metadata) equal(o *metadata) bool {
	return m.typ == o.typ && bytes.Equal(m.family, o.family) && bytes.Equal(m.help, o.help) && bytes.Equal(m.unit, o.unit)
}

// familyOf takes the suffix of a classic histogram's or summary's series off
// its name: remote write 2.0 describes series, not families.
func familyOf(name []byte, typ uint8) []byte {
	suffixes := []string{"_bucket", "_count", "_sum"}
	switch metricTypes[typ] {
	case model.MetricTypeHistogram:
	case model.MetricTypeGaugeHistogram:
		suffixes = []string{"_bucket", "_gcount", "_gsum", "_count", "_sum"}
	case model.MetricTypeSummary:
		suffixes = suffixes[1:]
	default:
		return name
	}
	for _, s := range suffixes {
		if family, ok := bytes.CutSuffix(name, []byte(s)); ok && len(family) > 0 {
			return family
		}
	}
	return name
}

// familyLine is a line of the file.
type familyLine struct {
	Family string           `json:"family"`
	Type   model.MetricType `json:"type"`
	Help   string           `json:"help,omitempty"`
	Unit   string           `json:"unit,omitempty"`
}

// families keeps type, help and unit of metric families: in memory for queries,
// and as one line of JSON each in a file that is only ever appended to, so that
// a change costs a line and what was acknowledged survives the process. The
// file is rewritten, without what went missing in between, when it is opened.
type families struct {
	max     int
	metrics *metrics

	path string

	mu     sync.RWMutex
	byName map[string][]prommeta.Metadata // the newest text first
	file   *os.File
	size   int64 // of the whole lines in file
}

// openFamilies reads the file in dir, or begins one.
func openFamilies(dir string, max int, m *metrics) (*families, error) {
	f := &families{
		path: filepath.Join(dir, familiesFile), max: max, metrics: m,
		byName: map[string][]prommeta.Metadata{},
	}
	if err := f.load(); err != nil {
		return nil, fmt.Errorf("read metric metadata: %w", err)
	}
	if err := f.rewrite(); err != nil {
		return nil, fmt.Errorf("write metric metadata: %w", err)
	}
	m.families.Set(float64(len(f.byName)))
	return f, nil
}

// load reads whole lines. The last one may be torn by a crash in the middle of
// a write that nobody was told had succeeded.
func (f *families) load() error {
	file, err := os.Open(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	r := bufio.NewReader(file)
	for {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		var l familyLine
		if json.Unmarshal(line, &l) == nil {
			f.add(l.Family, l.metadata())
		}
	}
}

// rewrite replaces the file by what is in memory, and leaves it open.
func (f *families) rewrite() error {
	var out bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(f.byName)) {
		for _, m := range slices.Backward(f.byName[name]) {
			if err := (familyLine{name, m.Type, m.Help, m.Unit}).encode(&out); err != nil {
				return err
			}
		}
	}
	tmp := f.path + ".tmp"
	file, err := os.OpenFile(tmp, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	_, err = file.Write(out.Bytes())
	if err == nil {
		err = file.Sync()
	}
	if err == nil {
		err = os.Rename(tmp, f.path)
	}
	if err != nil {
		return errors.Join(err, file.Close(), os.Remove(tmp))
	}
	f.file, f.size = file, int64(out.Len())
	return nil
}

func (l familyLine) encode(out *bytes.Buffer) error {
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	return enc.Encode(l)
}

func (l familyLine) metadata() prommeta.Metadata {
	return prommeta.Metadata{Type: l.Type, Help: l.Help, Unit: l.Unit}
}

// learn keeps what is new in ms and returns when it is written. Nearly always
// nothing is, and then nothing is allocated.
func (f *families) learn(ms []metadata) error {
	if len(ms) == 0 || f.max == 0 {
		return nil
	}
	var fresh []*metadata
	f.mu.RLock()
	for i := range ms {
		if !f.known(&ms[i]) {
			fresh = append(fresh, &ms[i])
		}
	}
	f.mu.RUnlock()
	if len(fresh) == 0 {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.store(fresh)
}

func (f *families) known(m *metadata) bool {
	for _, have := range f.byName[string(m.family)] {
		if have.Type == metricTypes[m.typ] && have.Help == view(cut(m.help)) && have.Unit == view(cut(m.unit)) {
			return true
		}
	}
	return false
}

// store appends the lines first: what the file does not have is not known.
func (f *families) store(fresh []*metadata) error {
	if f.file == nil {
		return errClosed
	}
	var out bytes.Buffer
	var kept []familyLine
	for _, m := range fresh {
		line := m.line()
		if slices.Contains(f.byName[line.Family], line.metadata()) || slices.Contains(kept, line) {
			continue
		}
		if !f.fits(line.Family, len(kept)) {
			f.metrics.refusedFamilies.Inc()
			continue
		}
		if err := line.encode(&out); err != nil {
			return err
		}
		kept = append(kept, line)
	}
	if _, err := f.file.WriteAt(out.Bytes(), f.size); err != nil {
		// A torn line would swallow the next one.
		return errors.Join(fmt.Errorf("write metric metadata to %s: %w", f.path, err), f.file.Truncate(f.size))
	}
	f.size += int64(out.Len())
	for _, line := range kept {
		f.add(line.Family, line.metadata())
	}
	f.metrics.families.Set(float64(len(f.byName)))
	return nil
}

// fits says whether one more text of the family may be kept when added new
// families are about to be.
func (f *families) fits(family string, added int) bool {
	if len(family) > maxMetadataBytes || !utf8.ValidString(family) {
		return false
	}
	have, ok := f.byName[family]
	if ok {
		return len(have) < maxVariants
	}
	return len(f.byName)+added < f.max
}

// line is m in memory of its own, its texts cut to length. JSON turns what is
// not UTF-8 into U+FFFD; that is done here already, so that a text read back
// from the file is the same.
func (m *metadata) line() familyLine {
	clean := func(b []byte) string { return strings.ToValidUTF8(string(cut(b)), "\uFFFD") }
	return familyLine{Family: string(m.family), Type: metricTypes[m.typ], Help: clean(m.help), Unit: clean(m.unit)}
}

func cut(b []byte) []byte { return b[:min(len(b), maxMetadataBytes)] }

func (f *families) add(name string, m prommeta.Metadata) {
	have := f.byName[name]
	if !slices.Contains(have, m) && len(have) < maxVariants && (len(have) > 0 || len(f.byName) < f.max) {
		f.byName[name] = slices.Insert(have, 0, m)
	}
}

// list returns what is known: of one family, or of all if name is empty; of at
// most limit families and perFamily texts each, negative being no limit.
func (f *families) list(name string, limit, perFamily int) map[string][]prommeta.Metadata {
	f.mu.RLock()
	defer f.mu.RUnlock()
	names := []string{name}
	if name == "" {
		names = slices.Sorted(maps.Keys(f.byName))
	}
	out := map[string][]prommeta.Metadata{}
	for _, n := range names {
		have, ok := f.byName[n]
		if !ok {
			continue
		}
		if limit >= 0 && len(out) >= limit {
			break
		}
		if perFamily > 0 && len(have) > perFamily {
			have = have[:perFamily]
		}
		out[n] = slices.Clone(have)
	}
	return out
}

// close makes the file safe against a crash of the machine and lets it go.
func (f *families) close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.file == nil {
		return nil
	}
	err := errors.Join(f.file.Sync(), f.file.Close())
	f.file = nil
	return err
}
