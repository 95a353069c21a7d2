package heroku

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	"github.com/spillway-telemetry/spillway/ingester/receive"
)

// errCount says that a request does not hold as many frames as its header says.
func errCount(said, found int) error {
	return fmt.Errorf("Logplex-Msg-Count says %d, and the body has %d frames", said, found)
}

// line is one syslog message. Its texts lie in the body.
type line struct {
	priority            int
	time                string
	host, app, proc, id string
	structured          string
	message             string
}

// decoder turns requests into log records. It is reused by one goroutine at a time.
type decoder struct {
	lines   []line
	invalid int
}

// frames splits a body and reads its lines.
func (d *decoder) frames(out *receive.Records, body []byte) error {
	d.lines, d.invalid = d.lines[:0], 0
	for at := 0; at < len(body); {
		space := bytes.IndexByte(body[at:min(len(body), at+12)], ' ')
		if space <= 0 {
			if len(bytes.TrimSpace(body[at:])) == 0 {
				return nil
			}
			return fmt.Errorf("at byte %d: a frame does not start with its length", at)
		}
		size, err := strconv.ParseUint(string(body[at:at+space]), 10, 31)
		start := at + space + 1
		if err != nil || int(size) > len(body)-start {
			return fmt.Errorf("at byte %d: a frame is said to have %.11s bytes, and %d follow", at, body[at:at+space], len(body)-start)
		}
		at = start + int(size)
		if err := out.Item(); err != nil {
			return err
		}
		l, err := parseLine(receive.ViewText(body[start:at]))
		if err != nil {
			d.invalid++
			continue
		}
		if d.lines, err = receive.Append(out, d.lines, l); err != nil {
			return err
		}
	}
	return nil
}

var errLine = errors.New("not a syslog message")

// parseLine reads `<PRI>1 TIME HOST APP PROCID MSGID MESSAGE`.
func parseLine(text string) (line, error) {
	var l line
	pri, rest, ok := cut(text, '>')
	if !ok || len(pri) < 2 || pri[0] != '<' {
		return l, errLine
	}
	var err error
	if l.priority, err = strconv.Atoi(pri[1:]); err != nil || l.priority < 0 || l.priority > 191 {
		return l, errLine
	}
	version, rest, ok := cut(rest, ' ')
	if !ok || version != "1" {
		return l, errLine
	}
	for _, field := range []*string{&l.time, &l.host, &l.app, &l.proc} {
		if *field, rest, ok = cut(rest, ' '); !ok {
			return l, errLine
		}
	}
	// An empty message may end right behind the MSGID.
	l.id, rest, _ = cut(rest, ' ')
	l.structured, rest = structuredData(rest)
	l.message = trimNewline(rest)
	return l, nil
}

// cut is strings.Cut at one byte.
func cut(text string, at byte) (before, after string, found bool) {
	for i := range len(text) {
		if text[i] == at {
			return text[:i], text[i+1:], true
		}
	}
	return text, "", false
}

// structuredData splits off structured data of RFC 5424, if it is there. A message of
// an application may well start with a bracket; only `[id name="value"...]` with the
// grammar of the RFC counts.
func structuredData(rest string) (data, message string) {
	if len(rest) == 0 || rest[0] != '[' {
		return "", rest
	}
	end := 0
	for end < len(rest) && rest[end] == '[' {
		n := elementEnd(rest[end:])
		if n == 0 {
			return "", rest
		}
		end += n
	}
	if end < len(rest) && rest[end] != ' ' {
		return "", rest
	}
	return rest[:end], rest[min(len(rest), end+1):]
}

// elementEnd returns the length of the SD-ELEMENT with at least one parameter that
// text starts with, 0 if there is none.
func elementEnd(text string) int {
	i := 1
	name := func() bool {
		start := i
		for i < len(text) && text[i] > ' ' && text[i] < 0x7f && text[i] != '=' && text[i] != ']' && text[i] != '"' {
			i++
		}
		return i > start
	}
	if !name() {
		return 0
	}
	for parameters := 0; i < len(text); parameters++ {
		if text[i] == ']' && parameters > 0 {
			return i + 1
		}
		if text[i] != ' ' {
			return 0
		}
		i++
		if !name() || i+1 >= len(text) || text[i] != '=' || text[i+1] != '"' {
			return 0
		}
		for i += 2; i < len(text) && text[i] != '"'; i++ {
			if text[i] == '\\' {
				i++
			}
		}
		i++
	}
	return 0
}

func trimNewline(text string) string {
	if n := len(text); n > 0 && text[n-1] == '\n' {
		text = text[:n-1]
	}
	return text
}

// write puts the lines out as records. What all of them agree on describes the
// resource.
func (d *decoder) write(out *receive.Records, drainToken string) error {
	if len(d.lines) == 0 {
		return nil
	}
	same := d.agreed()
	out.Resource.Text("drain_token", drainToken)
	describe(&out.Resource, &d.lines[0], same, true)
	out.Hold()
	defer out.Release()
	for i := range d.lines {
		if err := out.Wanted(); err != nil {
			return err
		}
		l := &d.lines[i]
		describe(&out.Attributes, l, same, false)
		out.Attributes.Text("msg_id", noDash(l.id))
		out.Attributes.Text("structured_data", l.structured)
		if nanos, ok := receive.ParseTime(l.time); ok {
			out.Time(nanos)
		} else {
			out.Attributes.Text("timestamp", noDash(l.time))
		}
		out.Severity(severities[l.priority&7])
		out.Body(l.message)
		if err := out.Add(); err != nil {
			return err
		}
	}
	return nil
}

// describe says what a line has in common with all others, or what it has not.
func describe(to *receive.Attributes, l *line, same [labelCount]bool, common bool) {
	for j, f := range l.labels() {
		if same[j] == common {
			to.Text(f.name, f.value)
		}
	}
}

// severities are syslog's, by number.
var severities = [8]string{"emerg", "alert", "crit", "err", "warning", "notice", "info", "debug"}

// labelCount is how many labels a line has beside the drain token.
const labelCount = 4

type field struct{ name, value string }

// labels are what rules may see of a line.
func (l *line) labels() [labelCount]field {
	return [labelCount]field{
		{"host_name", noDash(l.host)}, {"app_name", noDash(l.app)}, {"proc_id", noDash(l.proc)}, {"log_type", l.kind()},
	}
}

// agreed says for each label whether all lines have the same.
func (d *decoder) agreed() (same [labelCount]bool) {
	for j := range same {
		same[j] = true
	}
	for i := 1; i < len(d.lines); i++ {
		first, this := d.lines[0].labels(), d.lines[i].labels()
		for j := range same {
			same[j] = same[j] && first[j] == this[j]
		}
	}
	return same
}

// kind says where the line comes from. Heroku writes its own messages to local3 and
// those of dynos to local7; others keep the name of their facility.
func (l *line) kind() string {
	switch f := l.priority >> 3; {
	case f == 19:
		return "heroku"
	case f == 23:
		return "app"
	case f >= 16:
		return "local" + strconv.Itoa(f-16)
	default:
		return [...]string{"kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron",
			"authpriv", "ftp", "ntp", "audit", "alert", "clock"}[f]
	}
}

// noDash makes syslog's "-", which stands for no value, empty.
func noDash(text string) string {
	if text == "-" {
		return ""
	}
	return text
}
