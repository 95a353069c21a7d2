package ingester

import (
	"slices"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillway-telemetry/spillway/relabel"
)

// View is what the rules of one stream can see of a label set: two label sets that
// agree on the labels in view have the same route and are changed in the same way.
// A receiver whose labels are not found in one piece needs to put no others into
// Group.Key. It never changes, and one generation of the rules has one per stream.
type View struct {
	// All says that some rule looks at every label.
	All bool
	// Names are the labels in view, sorted, each once: those that relabel rules read
	// or write, that matchers of the policy name, that API keys add, and the one that
	// marks exempt telemetry.
	Names []string
	// Open says that Names is not the whole of it, since a rule writes labels by a
	// pattern or All is set: every name has to be asked for with Sees.
	Open bool

	footprint relabel.Footprint
}

// Sees says whether a label is in view.
func (v *View) Sees(name string) bool {
	if v.All {
		return true
	}
	if _, found := slices.BinarySearch(v.Names, name); found {
		return true
	}
	return v.Open && v.footprint.Writes(name)
}

// View returns what the rules that a batch of this origin goes by can see.
func (in *Ingester) View(o Origin, stream Stream) *View {
	g := o.rules
	if g == nil {
		g = in.generation.Load()
	}
	return g.streams[stream].view
}

// newView works out the view of one generation of a stream's rules.
func newView(st *streamRules) *View {
	v := &View{}
	if st.Rules != nil {
		v.footprint = st.Rules.Footprint()
	}
	v.All, v.Open = v.footprint.All, v.footprint.All
	names := append([]string{st.exempt.Label}, v.footprint.Names...)
	for _, t := range v.footprint.Targets {
		if t.Name == "" {
			v.Open = true
			continue
		}
		names = append(names, t.Name)
	}
	if st.Policy != nil {
		names = append(names, st.Policy.LabelNames()...)
	}
	if st.keys != nil {
		for _, sender := range st.keys.byDigest {
			sender.Labels.Range(func(l labels.Label) { names = append(names, l.Name) })
		}
	}
	slices.Sort(names)
	v.Names = slices.Compact(names)
	return v
}
