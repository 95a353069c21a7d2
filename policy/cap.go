package policy

import "math/big"

// Rate returns the cap's rate in items per second over all ingesters. It is
// shared and must not be written to.
func (p *Policy) Rate() *big.Rat { return p.limits.rate }

// Burst returns the cap's burst in items over all ingesters.
func (p *Policy) Burst() int64 { return p.limits.burst }

// Ingesters returns N.
func (p *Policy) Ingesters() int { return p.limits.ingesters }
