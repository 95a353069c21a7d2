package policy

import (
	"errors"
	"fmt"
	"math/big"
	"regexp"
	"strconv"
	"strings"
)

const (
	// maxLiteral is the longest number that is read, in bytes. It leaves room
	// for every float64 at full precision (24 bytes) and for exact decimals
	// far beyond, and bounds the work that one number can cause.
	maxLiteral = 64
	// maxBurst is 2^53, the largest count up to which float64, and with it
	// JSON and Prometheus, tells every whole number from the next.
	maxBurst = 1 << 53
)

// literal is a decimal number: sign, whole part, fraction, exponent.
var literal = regexp.MustCompile(`^([+-]?)([0-9]*)(?:\.([0-9]*))?(?:[eE][+-]?[0-9]+)?$`)

// parseDecimal reads a number from its digits, without rounding. It accepts
// what a float64 can hold, 0 to 1.8e308, and refuses every notation that two
// readers of YAML understand differently: 0x10, 010, 1_000.
func parseDecimal(s string) (*big.Rat, error) {
	if len(s) > maxLiteral {
		return nil, fmt.Errorf("is a number of %d characters: write it in at most %d", len(s), maxLiteral)
	}
	parts := literal.FindStringSubmatch(s)
	if parts == nil || parts[2]+parts[3] == "" {
		return nil, notDecimal(s)
	}
	sign, whole, digits := parts[1], parts[2], parts[2]+parts[3]
	if len(whole) > 1 && whole[0] == '0' {
		return nil, fmt.Errorf("is %s: some readers of YAML take a leading 0 for octal, leave it out", s)
	}
	if strings.Trim(digits, "0") == "" {
		return new(big.Rat), nil
	}
	if sign == "-" {
		return nil, fmt.Errorf("is %s: it must not be negative", s)
	}
	// This bounds the exponent before big numbers are made of it.
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return nil, fmt.Errorf("is %s: the largest number is 1.797e308", s)
	}
	if f == 0 {
		return nil, fmt.Errorf("is %s: the smallest number above 0 is 4.94e-324, write 0 if you mean none", s)
	}
	r, ok := new(big.Rat).SetString(s)
	if !ok {
		return nil, notDecimal(s)
	}
	return r, nil
}

func notDecimal(s string) error {
	switch strings.ToLower(strings.TrimLeft(s, "+-")) {
	case ".inf", ".nan", "inf", "nan":
		return fmt.Errorf("is %s: it must be finite", s)
	case "", "~", "null":
		return errors.New("is empty: write a number")
	}
	return fmt.Errorf("is %s: write a plain decimal number such as 500 or 39.5", shown(s))
}

// decimal writes r for people: exactly where that takes few digits, else to
// six significant ones.
func decimal(r *big.Rat) string {
	const fewBits, fewDigits = 128, 40
	if places, exact := r.FloatPrec(); exact && places <= fewDigits && r.Num().BitLen() <= fewBits {
		return r.FloatString(places)
	}
	f, _ := r.Float64()
	return strconv.FormatFloat(f, 'g', 6, 64)
}

// shown quotes text from a file for a message, cut where it is long.
func shown(s string) string {
	const long = 60
	rest := ""
	if len(s) > long {
		s, rest = strings.ToValidUTF8(s[:long], ""), "..."
	}
	if strings.Contains(s, `"`) && strconv.CanBackquote(s) {
		return "`" + s + "`" + rest
	}
	return strconv.Quote(s) + rest
}
