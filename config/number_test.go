package config_test

import (
	"fmt"
	"math"
	"testing"

	"golock/config"
)

func TestInt(t *testing.T) {
	for text, want := range map[string]int{"0": 0, "7": 7, "-7": -7, "007": 7, "100": 100, "-100": -100} {
		if got, err := config.ParseInt(text, -100, 100); err != nil || got != want {
			t.Errorf("ParseInt(%q) = %d, %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", "-", "+1", "--1", "-+1", " 1", "1 ", "1.0", "1e1", "1_0", "0x1", "0b1", "0o7", "١", "ten", "101", "-101", "99999999999999999999",
	} {
		want := fmt.Sprintf("%q is not an integer from -100 to 100", text)
		if got, err := config.ParseInt(text, -100, 100); err == nil || err.Error() != want || got != 0 {
			t.Errorf("ParseInt(%q) = %d, %v, want error %q", text, got, err, want)
		}
	}
}

func TestIntRange(t *testing.T) {
	for _, c := range []struct {
		low, high int
		want      string
	}{
		{1, 255, `"x" is not an integer from 1 to 255`},
		{1, math.MaxInt, `"x" is not an integer of 1 or more`},
		{math.MinInt, math.MaxInt, `"x" is not an integer`},
	} {
		if _, err := config.ParseInt("x", c.low, c.high); err == nil || err.Error() != c.want {
			t.Errorf("range %d to %d: %v, want %q", c.low, c.high, err, c.want)
		}
	}
}
