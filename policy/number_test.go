package policy

import (
	"math/big"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestP9Numbers(t *testing.T) {
	for s, want := range map[string]string{
		"0": "0", "0.0": "0", "-0": "0", "+0": "0", "0e999999999": "0", "0.00e-999999999": "0",
		"500": "500", "+500": "500", "500.": "500", ".5": "1/2", "39.5": "79/2", "0.1": "1/10", "1e3": "1000", "1E+3": "1000",
		"25e-1": "5/2", "1.5e1": "15", "9007199254740993": "9007199254740993", "0.5e-0": "1/2",
	} {
		r, err := parseDecimal(s)
		require.NoError(t, err, s)
		require.Equal(t, want, r.RatString(), s)
	}
	for s, want := range map[string]string{
		"-1": "negative", "-1e-300": "negative", "-0.001": "negative",
		"1e309": "largest", "1e400": "largest", "1e999999999": "largest", "1e99999999999999999999": "largest",
		"1e-400": "smallest", "1e-999999999": "smallest", "0.1e-999999999999": "smallest",
		".inf": "finite", "-.INF": "finite", ".NaN": "finite", "inf": "finite", "nan": "finite",
		"010": "octal", "00": "octal", "-01": "octal", "00.5": "octal",
		"0x10": "plain", "0o17": "plain", "0b1": "plain", "1_000": "plain", "1,000": "plain", "1:30": "plain", "0x1p4": "plain",
		".": "plain", "e5": "plain", "1e": "plain", "1e+": "plain", "--1": "plain", "1.2.3": "plain", "5/s": "plain", "½": "plain",
		" 1": "plain", "1\n": "plain", "2024-01-01": "plain", "infinity": "plain", "١": "plain", "true": "plain",
		"": "empty", "~": "empty", strings.Repeat("9", 65): "65 characters",
	} {
		_, err := parseDecimal(s)
		require.ErrorContains(t, err, want, "%q", s)
	}
}

// TestNumbersAreReadExactly reads numbers made from their digits and power of
// ten, and compares them with that quotient of integers.
func TestNumbersAreReadExactly(t *testing.T) {
	rnd := rand.New(rand.NewPCG(9, 9))
	for range 2000 {
		digits, places, exponent := rnd.Uint64(), rnd.IntN(19), rnd.IntN(40)-20
		s := strconv.FormatUint(digits, 10)
		places = min(places, len(s)-1)
		s = s[:len(s)-places] + "." + s[len(s)-places:] + "e" + strconv.Itoa(exponent)
		got, err := parseDecimal(s)
		require.NoError(t, err, s)
		power := new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(places-exponent+100)), nil))
		want := new(big.Rat).SetInt(new(big.Int).SetUint64(digits))
		want.Quo(want, power).Mul(want, new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(100), nil)))
		require.Zero(t, want.Cmp(got), s)
	}
}

func TestDecimalText(t *testing.T) {
	for s, want := range map[string]string{
		"0": "0", "100000": "100000", "39.50": "39.5", "1e-30": "0.000000000000000000000000000001", "1e308": "1e+308", "3e-300": "3e-300",
	} {
		r, err := parseDecimal(s)
		require.NoError(t, err)
		require.Equal(t, want, decimal(r))
	}
	require.Equal(t, "33.3333", decimal(big.NewRat(100, 3)))
}

func TestShownText(t *testing.T) {
	require.Equal(t, `"a"`, shown("a"))
	require.Equal(t, "`a=\"b\"`", shown(`a="b"`))
	require.Equal(t, `"\xff\n"`, shown("\xff\n"))
	require.Equal(t, `"`+strings.Repeat("x", 60)+`"...`, shown(strings.Repeat("x", 61)))
	require.Equal(t, `"`+strings.Repeat("x", 59)+`"...`, shown(strings.Repeat("x", 59)+"ö"))
}
