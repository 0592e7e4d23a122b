package config

import (
	"fmt"
	"math"
	"strings"
	"time"
)

const numerals = "0123456789."

// ParseDuration reads a duration of zero or more: plain seconds ("10", "0.5"),
// Go's form ("1m30s", "500ms") or that with days ("2d", "1d12h"). There are no
// signs, exponents and spaces. The longest is that of time.Duration, some 292
// years; fractions of a nanosecond are cut off.
func ParseDuration(text string) (time.Duration, error) {
	rest := text
	if strings.Trim(text, numerals) == "" {
		rest += "s" // makes the empty text malformed, too
	}
	var sum time.Duration
	for rest != "" {
		var number, unit string
		number, rest = span(rest, true)
		unit, rest = span(rest, false)
		if strings.Trim(number, ".") == "" || strings.Count(number, ".") > 1 || !isUnit(unit) {
			return 0, fmt.Errorf("%q is not a duration: write seconds (10, 0.5), units (1m30s, 500ms) or days (2d, 1d12h)", text)
		}
		part, ok := multiply(number, unit)
		if !ok || part > math.MaxInt64-sum {
			return 0, fmt.Errorf("%q is too long: the longest duration is 106751d", text)
		}
		sum += part
	}
	return sum, nil
}

// span cuts s where its leading numerals, or leading others, end.
func span(s string, inNumber bool) (string, string) {
	i := strings.IndexFunc(s, func(r rune) bool { return strings.ContainsRune(numerals, r) != inNumber })
	if i < 0 {
		return s, ""
	}
	return s[:i], s[i:]
}

func isUnit(unit string) bool {
	switch unit {
	case "d", "h", "m", "s", "ms", "us", "\u00b5s", "\u03bcs", "ns": // both micro signs, as in package time
		return true
	}
	return false
}

// multiply leaves the arithmetic of fractions to package time, which knows all
// units but the day. Of a well-formed number it refuses only what overflows.
func multiply(number, unit string) (time.Duration, bool) {
	if unit != "d" {
		d, err := time.ParseDuration(number + unit)
		return d, err == nil
	}
	d, err := time.ParseDuration(number + "h")
	return 24 * d, err == nil && d <= math.MaxInt64/24
}
