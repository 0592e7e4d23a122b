package config

import (
	"fmt"
	"time"
)

// Values holds the outcome of Resolve. Its methods take the key of a setting
// and panic for a key that is not in the table or is of another Kind, which is
// a mistake in the program. Their errors are of type *Error and name the source
// of the value.
type Values struct {
	settings []Setting
	found    []given // what the strongest source says, parallel to settings
	layers   int     // how many sources were added
}

// given is a value as text. A layer of 0 means that nobody gave it.
type given struct {
	texts  []string
	source Source
	layer  int // the source's rank, 1 is the strongest
}

func (g given) last() string { return g.texts[len(g.texts)-1] }

// add puts one source below all that were added before. lookup reports false
// for a setting that the source does not give.
func (v *Values) add(lookup func(Setting) (given, bool)) {
	v.layers++
	for i, s := range v.settings {
		if g, ok := lookup(s); ok && !v.hidden(i) {
			g.layer = v.layers
			v.found[i] = g
		}
	}
}

// hidden reports whether an earlier source gave the i-th setting or an
// alternative to it.
func (v *Values) hidden(i int) bool {
	for j, g := range v.found {
		rivals := i == j || v.settings[i].Group != "" && v.settings[i].Group == v.settings[j].Group
		if rivals && g.layer > 0 && g.layer < v.layers {
			return true
		}
	}
	return false
}

func (v *Values) find(key string) (int, bool) {
	for i, s := range v.settings {
		if s.Key == key {
			return i, true
		}
	}
	return 0, false
}

func (v *Values) index(key string) int {
	i, ok := v.find(key)
	if !ok {
		panic("config: no setting has the key " + key)
	}
	return i
}

// get returns the value of a setting that must be of one of the kinds.
func (v *Values) get(key string, kinds ...Kind) (given, bool) {
	i := v.index(key)
	for _, k := range kinds {
		if v.settings[i].Kind == k {
			return v.found[i], v.found[i].layer > 0
		}
	}
	panic("config: the setting " + key + " is of another kind")
}

// Given reports whether anybody gave the setting, and who. It takes any Kind.
func (v *Values) Given(key string) (Source, bool) {
	g := v.found[v.index(key)]
	return g.source, g.layer > 0
}

// Text returns a String or a Word as it was written, or def if nobody gave it.
func (v *Values) Text(key, def string) string {
	if g, ok := v.get(key, String, Word); ok {
		return g.last()
	}
	return def
}

// Bool returns a Bool, or def if nobody gave it.
func (v *Values) Bool(key string, def bool) (bool, error) {
	g, ok := v.get(key, Bool)
	switch {
	case !ok:
		return def, nil
	case g.last() == "true":
		return true, nil
	case g.last() == "false":
		return false, nil
	}
	return false, v.Errorf(key, "%q is neither true nor false", g.last())
}

// Int returns an Int from low to high, or def if nobody gave it; def need not
// be in the range.
func (v *Values) Int(key string, def, low, high int) (int, error) {
	g, ok := v.get(key, Int)
	if !ok {
		return def, nil
	}
	n, err := ParseInt(g.last(), low, high)
	if err != nil {
		return 0, v.Errorf(key, "%v", err)
	}
	return n, nil
}

// Duration returns a Duration, never negative, or def if nobody gave it.
func (v *Values) Duration(key string, def time.Duration) (time.Duration, error) {
	g, ok := v.get(key, Duration)
	if !ok {
		return def, nil
	}
	d, err := ParseDuration(g.last())
	if err != nil {
		return 0, v.Errorf(key, "%v", err)
	}
	return d, nil
}

// List returns the texts of a List in their order; nil if nobody gave it.
func (v *Values) List(key string) []string {
	g, _ := v.get(key, List)
	return append([]string(nil), g.texts...)
}

// Errorf makes an *Error about the value of a setting, for checks that need to
// know what it means. About a setting that nobody gave it is an error of the
// flag.
func (v *Values) Errorf(key, format string, args ...any) error {
	return &Error{Source: v.source(key), Problem: fmt.Sprintf(format, args...)}
}

func (v *Values) source(key string) Source {
	if source, ok := v.Given(key); ok {
		return source
	}
	return Source{Key: key}
}
