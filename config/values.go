package config

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Values is the outcome of Resolve. Its methods take the key of a setting and panic for
// a key that is not declared. A wrong value reads as zero; Err gives the first mistake.
type Values struct {
	settings []Setting
	found    []value // parallel to settings; without texts: nobody gave it
	err      error

	Notes    []string // what was skipped and may surprise the user
	Warnings []string // what may make another lock than the user has set up
}

type value struct {
	texts  []string
	source Source
}

func (v *Values) index(key string) int {
	return slices.IndexFunc(v.settings, func(s Setting) bool { return s.Key == key })
}

// Given reports whether somebody gave the setting, and who. If nobody did, the source is
// the flag that could give it.
func (v *Values) Given(key string) (Source, bool) {
	found := v.found[v.index(key)]
	if found.texts == nil {
		return Source{Key: key}, false
	}
	return found.source, true
}

// Drop forgets what was given for a setting: it has its default then.
func (v *Values) Drop(key string) { v.found[v.index(key)] = value{} }

// Text gives a setting as it was written, unless it is a List.
func (v *Values) Text(key string) string {
	i := v.index(key)
	if texts := v.found[i].texts; texts != nil {
		return texts[len(texts)-1]
	}
	return v.settings[i].Default
}

// Choice gives a setting that is one of some words.
func (v *Values) Choice(key string, words ...string) string {
	text := v.Text(key)
	if !slices.Contains(words, text) {
		v.Fail(key, "%q is none of %s", text, strings.Join(words, ", "))
	}
	return text
}

// Bool gives a setting that is true or false; variables may say 1 or 0.
func (v *Values) Bool(key string) bool {
	text := v.Text(key)
	if _, given := v.Given(key); given && !slices.Contains([]string{"true", "false", "1", "0"}, text) {
		v.Fail(key, "%q is neither true nor false", text)
	}
	return text == "true" || text == "1"
}

// Int gives an integer from low to high. It must have a default, or be given.
func (v *Values) Int(key string, low, high int) int {
	n, err := ParseInt(v.Text(key), low, high)
	if err != nil {
		v.Fail(key, "%v", err)
	}
	return n
}

// Duration gives a duration of zero or more.
func (v *Values) Duration(key string) time.Duration {
	text := v.Text(key)
	if _, given := v.Given(key); !given {
		text = cmp.Or(text, "0")
	}
	d, err := ParseDuration(text)
	if err != nil {
		v.Fail(key, "%v", err)
	}
	return d
}

// List gives all texts of a List.
func (v *Values) List(key string) []string { return v.found[v.index(key)].texts }

// Errorf makes an *Error about a setting. If nobody gave it, the flag is named.
func (v *Values) Errorf(key, format string, args ...any) error {
	source, _ := v.Given(key)
	err := fmt.Errorf(format, args...)
	return &Error{source, err.Error(), errors.Unwrap(err)}
}

// Err is the first mistake, nil if there is none.
func (v *Values) Err() error { return v.err }

// Fail keeps a mistake in a setting for Err.
func (v *Values) Fail(key, format string, args ...any) { v.Reject(v.Errorf(key, format, args...)) }

// Reject keeps any error for Err.
func (v *Values) Reject(err error) {
	if v.err == nil {
		v.err = err
	}
}

// ParseInt reads a decimal integer from low to high. It knows no plus sign, no
// other base and no underscores.
func ParseInt(text string, low, high int) (int, error) {
	switch n, err := strconv.Atoi(text); {
	case err == nil && text[0] != '+' && n >= low && n <= high:
		return n, nil
	case high < math.MaxInt32: // the largest that all machines count to
		return 0, fmt.Errorf("%q is not an integer from %d to %d", text, low, high)
	case low > math.MinInt32:
		return 0, fmt.Errorf("%q is not an integer of %d or more", text, low)
	}
	return 0, fmt.Errorf("%q is not an integer", text)
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
		behind := strings.TrimLeft(rest, numerals)
		number := strings.TrimSuffix(rest, behind)
		rest = strings.TrimLeftFunc(behind, func(r rune) bool { return !strings.ContainsRune(numerals, r) })
		unit := strings.TrimSuffix(behind, rest)
		times := time.Duration(1)
		if unit == "d" { // package time knows all units but the day
			unit, times = "h", 24
		}
		_, err := time.ParseDuration("1" + unit)
		if err != nil || strings.Trim(number, ".") == "" || strings.Count(number, ".") > 1 {
			return 0, fmt.Errorf("%q is not a duration: write seconds (10, 0.5), units (1m30s, 500ms) or days (2d, 1d12h)", text)
		}
		part, err := time.ParseDuration(number + unit)
		if err != nil || part > (math.MaxInt64-sum)/times {
			return 0, fmt.Errorf("%q is too long: the longest duration is 106751d", text)
		}
		sum += times * part
	}
	return sum, nil
}
