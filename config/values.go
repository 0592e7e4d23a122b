package config

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

// Values is the outcome of Resolve. Its methods take the key of a setting and
// panic for a key that nobody declared. Who reads a wrong value gets a zero; Err
// gives the first mistake.
type Values struct {
	settings []Setting
	found    []value // parallel to settings; without texts: nobody gave it
	closed   map[string]bool
	notes    []string
	err      error
}

type value struct {
	texts  []string
	source Source
}

func (v *Values) index(key string) int {
	i := slices.IndexFunc(v.settings, func(s Setting) bool { return s.Key == key })
	if i < 0 {
		panic("config: no setting has the key " + key)
	}
	return i
}

// text gives what somebody gave. The settings of Resolve itself may be undeclared.
func (v *Values) text(key string) (string, bool) {
	for i, s := range v.settings {
		if s.Key == key && v.found[i].texts != nil {
			return v.found[i].last(), true
		}
	}
	return "", false
}

// last is the text that counts; a list from a file can be empty.
func (f value) last() string {
	if len(f.texts) == 0 {
		return ""
	}
	return f.texts[len(f.texts)-1]
}

// Notes tells what was skipped and may surprise the user.
func (v *Values) Notes() []string { return v.notes }

// Given reports whether somebody gave the setting, and who.
func (v *Values) Given(key string) (Source, bool) {
	found := v.found[v.index(key)]
	return found.source, found.texts != nil
}

// Text gives a setting as it was written.
func (v *Values) Text(key string) string {
	i := v.index(key)
	if v.found[i].texts == nil {
		return v.settings[i].Default
	}
	return v.found[i].last()
}

// Bool gives a setting that is true or false; variables may say 1 or 0.
func (v *Values) Bool(key string) bool {
	text := v.Text(key)
	if _, given := v.Given(key); given && !slices.Contains([]string{"true", "false", "1", "0"}, text) {
		v.Fail(key, "%q is neither true nor false", text)
	}
	return text == "true" || text == "1"
}

// Int gives an integer from low to high. A default need not be in the range.
func (v *Values) Int(key string, low, high int) int {
	text := v.Text(key)
	if _, given := v.Given(key); !given {
		text, low, high = cmp.Or(text, "0"), math.MinInt32, math.MaxInt32
	}
	n, err := ParseInt(text, low, high)
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
func (v *Values) List(key string) []string { return slices.Clone(v.found[v.index(key)].texts) }

// Errorf makes an *Error about a setting. If nobody gave it, the flag is named.
func (v *Values) Errorf(key, format string, args ...any) error {
	return &Error{v.source(key), fmt.Sprintf(format, args...)}
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

func (v *Values) source(key string) Source {
	if source, ok := v.Given(key); ok {
		return source
	}
	return Source{Key: key}
}
