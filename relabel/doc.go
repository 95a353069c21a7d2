// Package relabel rewrites a label set, or drops it, by the rules that the user
// wrote. The rules are Prometheus relabel_configs; what they mean is what
// github.com/prometheus/prometheus/model/relabel does with them, in every
// corner: this package hands it the labels and adds how rules are read, shared
// and explained.
//
//	relabel_configs:
//	  - {source_labels: [env], regex: test, action: drop}
//	  - {source_labels: [pod], regex: "(.+)-[a-z0-9]+", target_label: workload}
//	  - {regex: pod|instance, action: labeldrop}
//
//	{env="prod", pod="shop-7f9c"}  ->  {env="prod", workload="shop"}
//	{env="test", pod="shop-7f9c"}  ->  dropped
//
// Rules run in order, each on what the one before it left. The first that drops
// ends it.
//
// # What a rule may say
//
// The fields are source_labels, separator, regex, modulus, target_label,
// replacement and action; another field is an error. The actions are replace
// (the default), keep, drop, keepequal, dropequal, hashmod, labelmap, labeldrop,
// labelkeep, lowercase and uppercase. Regular expressions are RE2, anchored at
// both ends. A missing label has the value "", and setting a label to "" removes
// it. Label names may be any UTF-8; a replace whose target turns out empty or
// not UTF-8 does nothing. Where a labelmap leads several labels to one name, the
// last wins: first come the labels of the set, by name, then those that earlier
// rules set, in the order in which they first set them.
//
// # Labels that begin with __
//
// Nothing is stripped, before or after. Prometheus drops __ labels of a scrape
// target when it has relabelled them; here, as in its write_relabel_configs,
// every label that the rules leave goes on to be classified and stored, whether
// it is called __tmp_team or __name__. Rules that use __tmp_ labels between each
// other end with one that removes them:
//
//   - {regex: __tmp_.*, action: labeldrop}
//
// # Footprint
//
// What is remembered about a label set depends only on the labels that some
// rule looks at. Footprint names them: a change of any other label changes
// neither the decision nor any label but itself.
package relabel
