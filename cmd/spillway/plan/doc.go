// Package plan says how many ingesters a peak needs, and what is left of them when
// something fails. It is arithmetic; nothing here measures.
//
// One ingester on c cores can process m·c items per second, with m items per
// CPU-second. The governor aims at a fraction target of the CPU limit, so m·c·target
// is what it lets through for long. With p ingesters in each of z zones, of which f
// may fail, and k ingesters that may fail alone, each of these must hold for the
// peak to come, peak = now·(1 + growth):
//
//	all is well   peak ≤ z·p·m·c·(1 - h),     h = max(headroom, 1 - target)
//	zones fail    peak ≤ (z-f)·p·m·c·target
//	some fail     peak ≤ (z·p - k)·m·c·target
//
// The plan is the smallest p for which all do, in exact arithmetic.
//
// # No reserve is counted twice
//
// Headroom is CPU that is not to be used on a good day. The governor leaves
// 1 - target unused, too, which is the same CPU: the larger of both counts, not
// their product. What failures take is no headroom, and headroom may be used while
// something has failed, so the conditions stand beside each other and the hardest
// one decides. A peak that is a forecast has the growth in it, and items per
// CPU-second that are called safe have the headroom in them: growth or headroom
// beside them is refused.
package plan
