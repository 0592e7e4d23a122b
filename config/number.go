package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// ParseInt reads a decimal integer from low to high. It knows no plus sign, no
// other base and no underscores.
func ParseInt(text string, low, high int) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || text[0] == '+' || n < low || n > high {
		switch {
		case high >= math.MaxInt32 && low <= math.MinInt32:
			return 0, fmt.Errorf("%q is not an integer", text)
		case high >= math.MaxInt32: // the largest that all machines count to
			return 0, fmt.Errorf("%q is not an integer of %d or more", text, low)
		}
		return 0, fmt.Errorf("%q is not an integer from %d to %d", text, low, high)
	}
	return n, nil
}

const numerals = "0123456789."

// ParseDuration reads a duration of zero or more: seconds ("10", "0.5"), Go's
// form ("1m30s") or that with days ("1d12h"), without signs and exponents.
// Fractions of a nanosecond are cut off.
func ParseDuration(text string) (time.Duration, error) {
	rest := text
	if strings.Trim(text, numerals) == "" {
		rest += "s" // makes the empty text malformed, too
	}
	var sum time.Duration
	for rest != "" {
		unit := strings.TrimLeft(rest, numerals)
		number := rest[:len(rest)-len(unit)]
		if i := strings.IndexAny(unit, numerals); i >= 0 {
			unit = unit[:i]
		}
		rest = rest[len(number)+len(unit):]
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

func isUnit(unit string) bool {
	switch unit {
	case "d", "h", "m", "s", "ms", "us", "\u00b5s", "\u03bcs", "ns": // both micro signs, as in package time
		return true
	}
	return false
}

// multiply fails only if the product is too large. Package time knows all units
// but the day.
func multiply(number, unit string) (time.Duration, bool) {
	if unit != "d" {
		d, err := time.ParseDuration(number + unit)
		return d, err == nil
	}
	d, err := time.ParseDuration(number + "h")
	return 24 * d, err == nil && d <= math.MaxInt64/24
}
