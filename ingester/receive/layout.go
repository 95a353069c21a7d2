package receive

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Layout says what the fields of a source's JSON records mean. All names are as the
// sender writes them; what is not named becomes an attribute of the record.
type Layout struct {
	// Body names the fields that hold the line, the best first. It has to be a string.
	Body []string
	// Time names the fields that say when it happened, the best first; see ParseTime.
	// One that cannot be read stays an attribute.
	Time []string
	// Level names the attributes that say how severe it is, the best first, with
	// dots between levels. They stay attributes, since rules match them by that name.
	Level []string
	// Resource names the fields that describe the source of the record. They become,
	// with all that is below them, attributes of the resource.
	Resource []string
	// Take is asked first for every field but null, and reports whether it has dealt
	// with it. The name is valid until the next use of the JSON.
	Take func(name string, value []byte) bool
}

// Errors of Record.
var (
	ErrNotAnObject       = errors.New("a record is not a JSON object")
	errTooManyAttributes = fmt.Errorf("a record has more than %d attributes", MaxAttributes)
)

// Record writes what a checked value says into the record being written. The caller
// adds it, or discards it where there is an error.
func (j *JSON) Record(out *Records, l *Layout, v []byte) error {
	if !IsObject(v) {
		return ErrNotAnObject
	}
	j.layout, j.level, j.rank = l, "", len(l.Level)
	body, bodyAt := j.first(v, l.Body, IsString)
	when, timeAt := j.first(v, l.Time, j.isTime)
	if body != nil {
		out.Body(j.Text(body))
	}
	if when != nil {
		nanos, _ := ParseTime(j.Text(when))
		out.Time(nanos)
	}
	n := 0
	for name, value := range Fields(v) {
		if n++; n-1 == bodyAt || n-1 == timeAt || IsNull(value) {
			continue
		}
		key := j.Text(name)
		if l.Take != nil && l.Take(key, value) {
			continue
		}
		key = j.Text(name) // Take may have used j
		if top, _, _ := strings.Cut(key, "."); slices.Contains(l.Resource, top) {
			j.Attribute(&out.Resource, key, value)
		} else {
			j.Attribute(&out.Attributes, key, value)
		}
	}
	out.Severity(j.level)
	if out.Resource.TooMany() || out.Attributes.TooMany() {
		return errTooManyAttributes
	}
	return nil
}

// first finds the best of some fields that is fit, and its place in the object.
func (j *JSON) first(object []byte, names []string, fit func([]byte) bool) (best []byte, at int) {
	rank, n := len(names), 0
	at = -1
	for name, value := range Fields(object) {
		i := slices.Index(names[:rank], j.Text(name))
		if i >= 0 && fit(value) {
			best, at, rank = value, n, i
		}
		n++
	}
	return best, at
}

func (j *JSON) isTime(v []byte) bool {
	if !IsString(v) && !IsNumber(v) {
		return false
	}
	_, ok := ParseTime(j.Text(v))
	return ok
}

// heed takes the level from the attribute that stands in path.
func (j *JSON) heed(text string) {
	if j.layout == nil || j.rank == 0 {
		return
	}
	if i := slices.Index(j.layout.Level[:j.rank], ViewText(j.path)); i >= 0 {
		j.level, j.rank = strings.Clone(text), i
	}
}

// Level says how severe the record is, for a Layout.Take that knows it better than
// any attribute.
func (j *JSON) Level(text string) { j.level, j.rank = strings.Clone(text), 0 }

// SplitTags appends the tags of a list with commas, empty ones left out, until there is
// one more than a record may have: millions of tags are a few bytes on the wire. They
// are copies.
func SplitTags(tags []string, list string) []string {
	for t := range strings.SplitSeq(list, ",") {
		if len(tags) > MaxAttributes {
			break
		}
		if t = strings.TrimSpace(t); t != "" {
			tags = append(tags, strings.Clone(t))
		}
	}
	return tags
}

// TagsOf is SplitTags for a checked array with a tag in each element.
func TagsOf(tags []string, j *JSON, array []byte) []string {
	for v := range Elements(array) {
		if len(tags) > MaxAttributes {
			break
		}
		if t := strings.TrimSpace(j.Text(v)); t != "" {
			tags = append(tags, strings.Clone(t))
		}
	}
	return tags
}

// Tags adds tags as Datadog writes them, name:value. The values of a name that
// stands more than once become a list; tags without a name become the list named
// tags.
func Tags(to *Attributes, tags []string) {
	const unnamed = "tags"
	type tag struct{ name, value string }
	split := make([]tag, 0, len(tags))
	for _, t := range tags {
		t = strings.TrimSpace(t)
		name, value, found := strings.Cut(t, ":")
		switch {
		case t == "":
		case !found || name == "":
			split = append(split, tag{unnamed, t})
		default:
			split = append(split, tag{name, value})
		}
	}
	slices.SortStableFunc(split, func(a, b tag) int { return strings.Compare(a.name, b.name) })
	for i := 0; i < len(split); {
		end := i + 1
		for end < len(split) && split[end].name == split[i].name {
			end++
		}
		if end == i+1 && split[i].name != unnamed {
			to.String(split[i].name, split[i].value)
		} else {
			values := make([]string, 0, end-i)
			for _, t := range split[i:end] {
				values = append(values, t.value)
			}
			to.Strings(split[i].name, values)
		}
		i = end
	}
}
