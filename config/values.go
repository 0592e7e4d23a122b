package config

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// Values are the settings that Resolve has found. Its methods take the key of a setting and panic for
// a key that is not declared. A wrong value reads as zero, and Err returns the first mistake.
type Values struct {
	settings []Setting
	found    []value // parallel to settings; a value without texts if no source gives the setting
	err      error

	// Earlier has the values for each name of a run except the last one, in the order of the names. They
	// differ from these values only in settings with OfEachName.
	Earlier []*Values

	Notes    []string // what Resolve has skipped and the user may not expect
	Warnings []string // why golock may use another lock than the user has set up
}

// value is what one source gives for a setting.
type value struct {
	texts  []string // nil if no source gives the setting
	source Source
}

func (v *Values) index(key string) int {
	return slices.IndexFunc(v.settings, func(s Setting) bool { return s.Key == key })
}

// Given returns the source of a setting, and whether a source gives it. If none does, it returns the
// flag as the source.
func (v *Values) Given(key string) (Source, bool) {
	found := v.found[v.index(key)]
	if found.texts == nil {
		return Source{Key: key}, false
	}
	return found.source, true
}

// Drop resets a setting to its default.
func (v *Values) Drop(key string) { v.found[v.index(key)] = value{} }

// Text returns a setting as it was written. It is not for a List.
func (v *Values) Text(key string) string {
	i := v.index(key)
	if texts := v.found[i].texts; texts != nil {
		return texts[len(texts)-1]
	}
	return v.settings[i].Default
}

// Path returns a setting that is the path of a file. It fails for a path with a control character, or with
// white space at an end: "job.jsonl\n" of a variable would be another file than "job.jsonl".
func (v *Values) Path(key string) (string, error) {
	path := v.Text(key)
	switch {
	case strings.ContainsFunc(path, unicode.IsControl):
		return "", v.Errorf(key, "%q has a control character: remove it from the path", path)
	case strings.TrimSpace(path) != path:
		return "", v.Errorf(key, "%q begins or ends with white space: remove it from the path", path)
	}
	return path, nil
}

// Choice returns a setting whose value must be one of the words.
func (v *Values) Choice(key string, words ...string) string {
	text := v.Text(key)
	if !slices.Contains(words, text) {
		v.Fail(key, "%q is not one of %s", text, strings.Join(words, ", "))
	}
	return text
}

// Bool returns a setting that is true or false. A variable may also be 1 or 0.
func (v *Values) Bool(key string) bool {
	text := v.Text(key)
	_, isGiven := v.Given(key)
	if isGiven && !slices.Contains([]string{"true", "false", "1", "0"}, text) {
		v.Fail(key, "%q is neither true nor false", text)
	}
	return text == "true" || text == "1"
}

// Int returns an integer from low to high. The setting must have a default, or a source must give it.
func (v *Values) Int(key string, low, high int) int {
	n, err := ParseInt(v.Text(key), low, high)
	if err != nil {
		v.Fail(key, "%v", err)
	}
	return n
}

// Duration returns a duration of zero or more.
func (v *Values) Duration(key string) time.Duration {
	text := v.Text(key)
	_, isGiven := v.Given(key)
	if !isGiven && text == "" {
		text = "0"
	}
	d, err := ParseDuration(text)
	if err != nil {
		v.Fail(key, "%v", err)
	}
	return d
}

// List returns all texts of a List.
func (v *Values) List(key string) []string { return v.found[v.index(key)].texts }

// Errorf makes an *Error about a setting. If no source gives the setting, the error names the flag.
func (v *Values) Errorf(key, format string, args ...any) error {
	source, _ := v.Given(key)
	err := fmt.Errorf(format, args...)
	return &Error{source, err.Error(), errors.Unwrap(err)}
}

// Conflict makes an *Error about two settings that cannot be combined. It names the sources of both; why is
// the rest of the sentence, or empty.
func (v *Values) Conflict(key, other, why string) error {
	source, _ := v.Given(other)
	return v.Errorf(key, "cannot be combined with %v%s", source, why)
}

// Err returns the first mistake that Fail or Reject has recorded.
func (v *Values) Err() error { return v.err }

// Fail records a mistake in a setting. Err returns it if it is the first one.
func (v *Values) Fail(key, format string, args ...any) { v.Reject(v.Errorf(key, format, args...)) }

// Reject records any error, or nothing if it is nil. Err returns it if it is the first one.
func (v *Values) Reject(err error) {
	if v.err == nil {
		v.err = err
	}
}

// ParseInt reads a decimal integer from low to high. It refuses a plus sign, other bases and
// underscores.
func ParseInt(text string, low, high int) (int, error) {
	n, err := strconv.Atoi(text)
	switch {
	case err == nil && text[0] != '+' && n >= low && n <= high:
		return n, nil
	case high < math.MaxInt32: // MaxInt32 or more stands for "no upper limit", on machines of 32 bits too
		return 0, fmt.Errorf("%q is not an integer from %d to %d", text, low, high)
	case low > math.MinInt32:
		return 0, fmt.Errorf("%q is not an integer of %d or more", text, low)
	}
	return 0, fmt.Errorf("%q is not an integer", text)
}

const numerals = "0123456789."

// ParseDuration reads a duration of zero or more: seconds ("10", "0.5"), the form of package time
// ("1m30s"), or that form with days ("1d12h"). It refuses signs and exponents, and cuts off fractions
// of a nanosecond.
func ParseDuration(text string) (time.Duration, error) {
	rest := text
	if strings.Trim(text, numerals) == "" {
		rest += "s" // with the unit an empty text is malformed, as it should be
	}
	var sum time.Duration
	for rest != "" {
		var number, unit string
		number, unit, rest = cutNumber(rest)
		factor := time.Duration(1)
		if unit == "d" { // package time knows all units but the day
			unit, factor = "h", 24
		}
		_, err := time.ParseDuration("1" + unit)
		if err != nil || strings.Trim(number, ".") == "" || strings.Count(number, ".") > 1 {
			return 0, fmt.Errorf("%q is not a duration: write seconds (10, 0.5), units (1m30s, 500ms) or days (2d, 1d12h)", text)
		}
		part, err := time.ParseDuration(number + unit)
		if err != nil || part > (math.MaxInt64-sum)/factor {
			return 0, fmt.Errorf("%q is too long: the longest duration is 106751d", text)
		}
		sum += factor * part
	}
	return sum, nil
}

// cutNumber cuts a number and the unit behind it off the beginning of a duration. Both may be malformed or empty.
func cutNumber(text string) (number, unit, rest string) {
	isNotNumeral := func(r rune) bool { return !strings.ContainsRune(numerals, r) }
	afterNumber := strings.TrimLeft(text, numerals)
	number = strings.TrimSuffix(text, afterNumber)
	rest = strings.TrimLeftFunc(afterNumber, isNotNumeral)
	unit = strings.TrimSuffix(afterNumber, rest)
	return number, unit, rest
}
