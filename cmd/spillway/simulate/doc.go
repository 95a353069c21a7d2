// Package simulate replays traffic through the real buckets in virtual time, to say
// before a policy is in force what it would drop, and why.
//
// Traffic is a rate over time for each class. It arrives in sends: every Every, each
// ingester receives the items of its share of the rate that have come together,
// as groups of ItemsPerGroup, all at one instant. What does not fill a group waits
// for the next send. An ingester is a ratecontrol.Limiter made from the policy, as
// in the running program; there is no other model of a bucket here.
//
// # Why items are dropped
//
//	no budget      the class has rate 0, or a rule names it and the policy does not define it
//	group > burst  one group costs more than the bucket ever holds
//	rate           the class was sent more than its rate over the last minute,
//	               or since the start
//	burst          it was not, but what came at once was more than the bucket held
//
// A larger burst helps against the last two, against "rate" only for a while.
//
// # The smallest burst
//
// With q(t) the items that a bucket which never says no would owe at t,
//
//	q(t) = max(0, q(s) - rate·(t-s)) + items(t),   s the send before t
//
// the smallest burst that drops nothing is the largest q, rounded up. That is
// where the search starts. What is reported has been tried with the real bucket:
// it drops nothing, and one token less drops something. A real bucket rounds against
// the sender, so where q is a whole number it can take one token more than q.
package simulate
