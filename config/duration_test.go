package config_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"golock/config"
)

func TestDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"0":                     0,
		"0s":                    0,
		"10":                    10 * time.Second,
		"007":                   7 * time.Second,
		"0.5":                   500 * time.Millisecond,
		".5":                    500 * time.Millisecond,
		"5.":                    5 * time.Second,
		"1.000000001":           time.Second + 1,
		"0.0000000001":          0,
		"500ms":                 500 * time.Millisecond,
		"1us2ns":                1002,
		"1µs":                   1000, // U+00B5
		"1μs":                   1000, // U+03BC
		"1m30s":                 90 * time.Second,
		"1.5h":                  90 * time.Minute,
		"2d":                    48 * time.Hour,
		"1d12h":                 36 * time.Hour,
		"0.5d":                  12 * time.Hour,
		"12h1d":                 36 * time.Hour,
		"106751d":               106751 * 24 * time.Hour,
		"9223372036":            9223372036 * time.Second,
		"9223372036854775807ns": math.MaxInt64,
	} {
		if got, err := config.ParseDuration(text); err != nil || got != want {
			t.Errorf("ParseDuration(%q) = %v, %v, want %v", text, got, err, want)
		}
	}
}

func TestWrongDuration(t *testing.T) {
	for want, texts := range map[string][]string{
		"%q is not a duration: write seconds (10, 0.5), units (1m30s, 500ms) or days (2d, 1d12h)": {
			"", " ", ".", "..", "1..5", "1.5.5", "-1", "-5s", "+5", "+5s", "1e3", "1e3s", "0x10", "1_000", "5 s", " 5", "5 ", "5s ",
			"NaN", "nan", "Inf", "inf", "infinity", "s", "d", "m5", "5x", "5sec", "1m30", "2D", "5S", "1h-5m", "١", "1,5", "5s\x00", "\xff",
		},
		"%q is too long: the longest duration is 106751d": {
			"106752d", "9223372037", "99999999999999999999", "2562048h", "106751d24h", "9223372036854775807ns1ns",
			"99999999999999999999d", strings.Repeat("9", 400),
		},
	} {
		for _, text := range texts {
			if got, err := config.ParseDuration(text); err == nil || err.Error() != fmt.Sprintf(want, text) {
				t.Errorf("ParseDuration(%q) = %v, %v, want error %q", text, got, err, want)
			}
		}
	}
}

// What package time takes, apart from signs, means the same here, and days are
// the only thing that it does not know.
func FuzzDuration(f *testing.F) {
	for _, s := range []string{"1m30s", "2d", "0.5", "1d12h", "-1s", "9223372037", "1e3", "1µs", "5 s", "inf", ".s", "0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := config.ParseDuration(text)
		if got < 0 || err != nil && got != 0 {
			t.Fatalf("ParseDuration(%q) = %d, %v", text, got, err)
		}
		if err == nil && strings.ContainsAny(text, "+-_eExXn \t") && !strings.Contains(text, "ns") {
			t.Fatalf("ParseDuration(%q) = %v", text, got)
		}
		if !strings.ContainsAny(text, "+-d") && strings.Trim(text, "0123456789.") != "" {
			want, wantErr := time.ParseDuration(text)
			if want != got || (err == nil) != (wantErr == nil) {
				t.Fatalf("ParseDuration(%q) = %v, %v, package time: %v, %v", text, got, err, want, wantErr)
			}
		}
	})
}
