package config_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"golock/config"
)

func TestNobodyGaveAnything(t *testing.T) {
	v := host{t: t}.mustResolve(nil, nil)
	n := v.Int("max", 1, 3)
	d, b, none := v.Duration("kill-after"), v.Bool("tree"), v.Duration("wait")
	if n != 1 || d != 10*time.Second || b || none != 0 || v.Err() != nil {
		t.Errorf("defaults: %d %v %v %v, error %v", n, d, b, none, v.Err())
	}
	if s := v.Text("store"); s != "local" {
		t.Errorf("Text: %q", s)
	}
	if l := v.List("ok-exit"); l != nil {
		t.Errorf("List: %q", l)
	}
	for _, s := range settings {
		if src, ok := v.Given(s.Key); ok {
			t.Errorf("%s is given by %s", s.Key, src)
		}
	}
	wantError(t, v.Errorf("name", "is required"), "--name: is required", true)
}

// A variable that is likely a misspelt setting, or has the name of a flag without a variable, is reported.
// All others are somebody else's: of Kubernetes, an image, a script.
func TestUnknownVariables(t *testing.T) {
	for name, want := range map[string]string{
		"GOLOCK_STROE":  "GOLOCK_STROE: is not a setting of golock; did you mean GOLOCK_STORE?",
		"GOLOCK_STOR":   "GOLOCK_STOR: is not a setting of golock; did you mean GOLOCK_STORE?",
		"GOLOCK_STORES": "GOLOCK_STORES: is not a setting of golock; did you mean GOLOCK_STORE?",
		"GOLOCK_STARE":  "GOLOCK_STARE: is not a setting of golock; did you mean GOLOCK_STORE?",
		"GOLOCK_MAXX":   "GOLOCK_MAXX: is not a setting of golock; did you mean GOLOCK_MAX?",
		"GOLOCK_WIAT":   "GOLOCK_WIAT: is not a setting of golock; did you mean GOLOCK_WAIT?",
		"GOLOCK_SIGNAL": "GOLOCK_SIGNAL: is not a setting of golock: use --signal",
	} {
		_, err := config.CheckVariable(name, "GOLOCK_", settings)
		wantError(t, err, want, false)
	}
	for name, isSetting := range map[string]bool{
		"GOLOCK_MAX": true, "GOLOCK_STORE": true,
		"GOLOCK_": false, "GOLOCK_COLOUR": false, "GOLOCK_HOST": false, "GOLOCK_MAP": false, "GOLOCK_NODE": false,
		"GOLOCK_PID": false, "GOLOCK_PORT": false, "GOLOCK_SERVICE_HOST": false, "GOLOCK_TTY": false,
		"GOLOCK_URL": false, "GOLOCK_VERSION": false, "GOLOCK_W": false,
	} {
		if got, err := config.CheckVariable(name, "GOLOCK_", settings); got != isSetting || err != nil {
			t.Errorf("%s: is a setting: %v, %v; expected %v", name, got, err, isSetting)
		}
	}
}

// What is wrong with a value is said with the place of the value in front, for
// all three kinds of places.
func TestValueErrors(t *testing.T) {
	const notDuration = `"soon" is not a duration: write seconds (10, 0.5), units (1m30s, 500ms) or days (2d, 1d12h)`
	h := newHost(t)
	write(t, h.user, "[defaults]\nstore = 'x'\nmax = 0\n")
	f := flags{"kill-after": {"soon"}, "shared": {"yes"}, "signal": {"TREM"}, "ok-exit": {"999"}}
	e := env{"GOLOCK_MAX": "many", "GOLOCK_WAIT": "soon", "GOLOCK_TREE": "on"}
	check := func(f flags, e env, read func(*config.Values), text string, fromFlag bool) {
		t.Helper()
		v := h.mustResolve(f, e)
		read(v)
		v.Reject(errors.New("a second mistake"))
		wantError(t, v.Err(), text, fromFlag)
	}
	check(f, e, func(v *config.Values) { v.Duration("kill-after") }, "--kill-after: "+notDuration, true)
	check(f, e, func(v *config.Values) { v.Duration("wait") }, "GOLOCK_WAIT: "+notDuration, false)
	check(f, e, func(v *config.Values) { v.Bool("shared") }, `--shared: "yes" is neither true nor false`, true)
	check(f, e, func(v *config.Values) { v.Bool("tree") }, `GOLOCK_TREE: "on" is neither true nor false`, false)
	check(nil, e, func(v *config.Values) { v.Int("max", 1, 100) }, `GOLOCK_MAX: "many" is not an integer from 1 to 100`, false)
	check(nil, nil, func(v *config.Values) { v.Int("max", 1, 100) }, h.user+`:3: max: "0" is not an integer from 1 to 100`, false)
	check(f, e, func(v *config.Values) { v.Fail("signal", "there is no signal %q", v.Text("signal")) }, `--signal: there is no signal "TREM"`, true)
	check(f, e, func(v *config.Values) { v.Fail("ok-exit", "%s is not an exit code", v.List("ok-exit")[0]) }, `--ok-exit: 999 is not an exit code`, true)
	check(f, e, func(v *config.Values) { v.Fail("store", "unknown scheme") }, h.user+":2: store: unknown scheme", false)
}

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
