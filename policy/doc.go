// Package policy owns classes: what each may spend, and which label set
// belongs to which.
//
// A stream has a cap, a rate in items per second and a burst in items, both
// over all ingesters. Classes are named parts of the cap, and one of them,
// default, takes what no rule takes. Rules are tried in order; the first whose
// matchers all match a label set names its class.
//
//	streams:
//	  logs:
//	    rate: 100000
//	    burst: 200000
//	    default: {rate: 60000}
//	    classes:
//	      - {name: team-a, rate: 39500}
//	      - {name: debug, rate: 500}
//	    rules:
//	      - {class: team-a, matchers: ['team="a"']}
//	      - {class: debug, matchers: ['level=~"debug|trace"', 'env!="prod"']}
//
// # Arithmetic
//
// With R and B the cap's rate and burst, N the number of ingesters, and r the
// rate of a class, where r > 0:
//
//	default r + sum of the other r <= R
//	share    = floor(100 r / R)                     percent of the cap
//	rate     = r / N                                on each ingester
//	burst    = max(1, floor(B share / (100 N)))     on each ingester
//
// A class with r = 0 has share, rate and burst 0: it has no bucket and loses
// every item. So does a class that a rule names and the policy does not define.
//
// Rates are exact rationals from the digits in the file to the end, so that 29
// of 100 is 29 % and not the 28 % that floor(100 * 0.29) yields in floating
// point. For the example on N = 4:
//
//	team-a    39 %     9875/s    burst 19500
//	debug      0 %      125/s    burst     1
//	default   60 %    15000/s    burst 30000
//
// # Use
//
// [Load] turns a file into an immutable [Set], or into every problem that the
// file has. [Policy.Classify] turns a label set into a class id, an index into
// [Policy.Classes]. The rules P1 to P13 in the comments are numbered as in the
// reference of the file format, POLICY.md beside this file.
package policy
