package config

import (
	"fmt"
	"math"
	"strconv"
)

// ParseInt reads a decimal integer from low to high, both included. A leading
// minus is the only sign it knows; there are no underscores, no other bases and
// no spaces, so that a text means the same in a flag, a variable and a file.
func ParseInt(text string, low, high int) (int, error) {
	digits := text
	if digits != "" && digits[0] == '-' {
		digits = digits[1:]
	}
	n, err := strconv.Atoi(text)
	if err != nil || digits == "" || !isDigit(digits[0]) || n < low || n > high {
		return 0, fmt.Errorf("%q is not an integer%s", text, describeRange(low, high))
	}
	return n, nil
}

func describeRange(low, high int) string {
	switch {
	case low == math.MinInt && high == math.MaxInt:
		return ""
	case high == math.MaxInt:
		return fmt.Sprintf(" of %d or more", low)
	case low == math.MinInt:
		return fmt.Sprintf(" of %d or less", high)
	default:
		return fmt.Sprintf(" from %d to %d", low, high)
	}
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
