package config_test

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golock/config"
)

// The files of the documentation, and forms in which TOML lets a setting
// be written.
func TestFileForms(t *testing.T) {
	for _, text := range []string{
		"[defaults]\nmax = 3\n",
		"[lock.\"a.b c\u00e4/\"]\nmax = 3",
		"lock.'a.b c\u00e4/' = { max = 3 }",
		"lock = { \"a.b c\u00e4/\".max = 3, other.max = 4 }",
		"defaults = { max = 3, wait = 1 }",
		"[defaults]\r\n\"m\\u0061x\" = 3 # three\r\n",
		"[defaults]\nmax = 4\n[lock.'a.b c\u00e4/']\nmax = 3\n[lock.a]\nmax = 5\n[lock]\n[lock.b]",
		"lock.b.max = 1\nlock.'a.b c\u00e4/'.max = 3\nlock.b.wait = 1\n[lock.c]\nmax = 5",
	} {
		h := newHost(t)
		write(t, h.system, text)
		v := h.mustResolve(flags{"name": {"a.b c\u00e4/"}}, nil)
		if n := v.Int("max", 1, 9); n != 3 || v.Err() != nil {
			t.Errorf("max = %d, %v in\n%s", n, v.Err(), text)
		}
	}
}

// The name comes from flag or variable; without one only [defaults] counts.
func TestWhichLock(t *testing.T) {
	h := newHost(t)
	write(t, h.system, "[defaults]\nmax = 1\n[lock.a]\nmax = 2\n[lock.b]\nmax = 3\n[lock.\"\"]\nmax = 4")
	for _, c := range []struct {
		f    flags
		e    env
		want int
	}{
		{want: 1},
		{f: flags{"name": {"a"}}, want: 2},
		{e: env{"GOLOCK_NAME": "b"}, want: 3},
		{f: flags{"name": {"a"}}, e: env{"GOLOCK_NAME": "b"}, want: 2},
		{f: flags{"name": {"A"}}, want: 1},
		{f: flags{"name": {""}}, want: 4},
		{e: env{"GOLOCK_NAME": ""}, want: 1},
	} {
		v := h.mustResolve(c.f, c.e)
		if n := v.Int("max", 1, 9); n != c.want || v.Err() != nil {
			t.Errorf("%v %v: max = %d, %v, want %d", c.f, c.e, n, v.Err(), c.want)
		}
	}
}

// Each of several names has its own values of some settings. Of others they must agree, unless a flag decides.
func TestSeveralNames(t *testing.T) {
	h := newHost(t)
	write(t, h.system, "[defaults]\nwait = 60\n[lock.a]\nmax = 2\nwait = '1m'\n[lock.b]\nmax = 3\n[lock.c]\nwait = 61\n")
	each := slices.Clone(settings)
	for i := range each {
		each[i].OfEachName = each[i].Key == "max"
	}
	resolve := func(f flags) (*config.Values, error) {
		return h.resolveOf(each, f, nil)
	}
	v, err := resolve(flags{"name": {"a", "b", "d"}})
	if err != nil {
		t.Fatal(err)
	}
	if n := []int{v.Earlier[0].Int("max", 1, 9), v.Earlier[1].Int("max", 1, 9), v.Int("max", 1, 9)}; !slices.Equal(n, []int{2, 3, 1}) {
		t.Errorf("max = %v", n)
	}
	_, err = resolve(flags{"name": {"a", "c"}})
	wantError(t, err, h.system+`:5: wait: is that of the lock "a", not of all 2 names, and a run has one for all of them: give it as a flag`, false)
	_, err = resolve(flags{"name": {"a", "c"}, "wait": {"5"}})
	if err != nil {
		t.Error(err)
	}
}

func TestFileValues(t *testing.T) {
	for text, want := range map[string]string{
		"store = 'local'":              "local",
		"store = \"\"\"\nl\"\"\"":      "l",
		"store = ''":                   "",
		"signal = 'INT'":               "INT",
		"signal = 9":                   "9",
		"max = -3":                     "-3",
		"tree = true":                  "true",
		"tree = false":                 "false",
		"wait = 10":                    "10s",
		"wait = 0.5":                   "500ms",
		"wait = 1e3":                   "16m40s",
		"max = 0x3":                    "3",
		"wait = '1d12h'":               "36h0m0s",
		"ok-exit = 143":                "[143]",
		"ok-exit = '143'":              "[143]",
		"ok-exit = []":                 "[]",
		"ok-exit = [\n1, # one\n'x',]": "[1 x]",
	} {
		h := newHost(t)
		write(t, h.system, "[defaults]\n"+text)
		v := h.mustResolve(nil, nil)
		var got any
		switch key, _, _ := strings.Cut(text, " "); key {
		case "max":
			got = v.Int(key, -9, 9)
		case "tree":
			got = v.Bool(key)
		case "wait":
			got = v.Duration(key)
		case "ok-exit":
			got = v.List(key)
		default:
			got = v.Text(key)
		}
		if v.Err() != nil || fmt.Sprint(got) != want {
			t.Errorf("%s: %v, %v, want %s", text, got, v.Err(), want)
		}
	}
}

// An empty list is an answer: it hides that of a weaker source.
func TestEmptyListCounts(t *testing.T) {
	h := newHost(t)
	write(t, h.system, "[defaults]\nok-exit = [1]")
	write(t, h.user, "[defaults]\nok-exit = []")
	v := h.mustResolve(nil, nil)
	if src, ok := v.Given("ok-exit"); len(v.List("ok-exit")) != 0 || !ok || src.String() != h.user+":2: ok-exit" {
		t.Errorf("%q from %s", v.List("ok-exit"), src)
	}
}

func TestFileErrors(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		// syntax, and what TOML forbids to define twice
		{"[defaults]\nmax = \n", `:2: this is not TOML: unexpected character U+000A at start of value`},
		{"[defaults]\n\nmax", `:3: this is not TOML: expected '=' after key`},
		{"[defaults]\nok-exit = [1,\n2", `:3: this is not TOML: array is incomplete`},
		{"# \xff\n", `:1: this is not TOML: invalid UTF-8 character in comment`},
		{"[defaults]\nmax = 1\n\nmax = 1", `:4: this is not TOML: key max is already defined`},
		{"lock.a.max = 1\n[lock]", `:2: this is not TOML: table lock already exists as defined by a dotted key`},

		// tables
		{"[default]", `:1: unknown table [default], did you mean [defaults]?`},
		{"\n[locks.nightly]", `:2: unknown table [locks.nightly], did you mean [lock.nightly]?`},
		{"[Defaults]", `:1: unknown table [Defaults], did you mean [defaults]?`},
		{"[nightly]", `:1: unknown table [nightly]: there are [defaults] and [lock."NAME"]`},
		{"[defaults.nightly]", `:1: unknown setting "nightly": settings are named as the flags are, without the dashes`},
		{"[lock.a.b]", `:1: unknown table [lock.a.b]: a name with dots needs quotes, [lock."a.b"]`},
		{"nightly.max = 1", `:1: unknown table [nightly.max]: there are [defaults] and [lock."NAME"]`},
		{"[[defaults]]", `:1: defaults must be a table: settings stand in [defaults] or [lock."NAME"]`},
		{"[[lock.'a b']]", `:1: lock."a b" must be a table: settings stand in [defaults] or [lock."NAME"]`},
		{"defaults = 1", `:1: defaults must be a table: settings stand in [defaults] or [lock."NAME"]`},
		{"lock = 1", `:1: lock must be a table: settings stand in [defaults] or [lock."NAME"]`},
		{"[lock]\nmax = 1", `:2: lock.max must be a table: settings stand in [defaults] or [lock."NAME"]`},
		{"max = 1", `:1: max stands outside of a table: put it below [defaults] or [lock."NAME"]`},
		{"maxx = 1", `:1: unknown table [maxx]: there are [defaults] and [lock."NAME"]`},

		// keys
		{"[defaults]\nkill_after = 1", `:2: unknown setting "kill_after", did you mean kill-after?`},
		{"[defaults]\nstroe = 'x'", `:2: unknown setting "stroe", did you mean store?`},
		{"[defaults]\nMax = 1", `:2: unknown setting "Max", did you mean max?`},
		{"[defaults]\n'' = 1", `:2: unknown setting "": settings are named as the flags are, without the dashes`},
		{"[defaults]\nspeed = 1", `:2: unknown setting "speed": settings are named as the flags are, without the dashes`},
		{"[defaults]\n" + strings.Repeat("x", 65) + " = 1", `:2: unknown setting "` + strings.Repeat("x", 65) + `": settings are named as the flags are, without the dashes`},
		{"[lock.a]\nmax.min = 1", `:2: max: must be an integer without quotes`},
		{"[defaults]\nname = 'x'", `:2: name cannot stand in a file: use --name or GOLOCK_NAME`},
		{"[lock.a]\nconfig = 'x'", `:2: config cannot stand in a file: use --config or GOLOCK_CONFIG`},
		{"[lock.a]\nexec = true", `:2: exec cannot stand in a file: use --exec`},
		{"lock = { a = { max = 1 }, b = {\nspeed = 1 } }", `:2: unknown setting "speed": settings are named as the flags are, without the dashes`},

		// types; never the value, which may be a store with a password
		{"[defaults]\nmax = '3'", `:2: max: must be an integer without quotes`},
		{"[defaults]\nmax = 3.0", `:2: max: must be an integer without quotes`},
		{"[defaults]\nmax = true", `:2: max: must be an integer without quotes`},
		{"[defaults]\nmax = [1]", `:2: max: must be an integer without quotes`},
		{"[defaults]\nmax = {}", `:2: max: must be an integer without quotes`},
		{"[defaults]\nmax = 2026-11-21", `:2: max: must be an integer without quotes`},
		{"[defaults]\ntree = 'true'", `:2: tree: must be true or false without quotes`},
		{"[defaults]\ntree = 1", `:2: tree: must be true or false without quotes`},
		{"[defaults]\nstore = ['redis://:secret@h']", `:2: store: must be a string in quotes`},
		{"[defaults]\nsignal = 1.5", `:2: signal: must be a string in quotes or an integer`},
		{"[defaults]\nwait = true", `:2: wait: must be seconds or a string such as "1m30s"`},
		{"[defaults]\nwait = 10:00:00", `:2: wait: must be seconds or a string such as "1m30s"`},
		{"[defaults]\nok-exit = [1, [2]]", `:2: ok-exit: must be an array of strings in quotes or integers`},
		{"[defaults]\nok-exit = [1, 2.5]", `:2: ok-exit: must be an array of strings in quotes or integers`},

		// values, also those of a lock that nobody asked for
		{"[lock.a]\nmax = 9223372036854775808", `:2: this is not TOML: decimal number is too large to fit in a 64-bit signed integer`},
		{"[lock.a]\nwait = '5 s'", `:2: wait: "5 s" is not a duration: write seconds (10, 0.5), units (1m30s, 500ms) or days (2d, 1d12h)`},
		{"[lock.a]\nwait = -1", `:2: wait: "-1" is not a duration: write seconds (10, 0.5), units (1m30s, 500ms) or days (2d, 1d12h)`},
		{"[lock.a]\nwait = inf", `:2: wait: "+Inf" is not a duration: write seconds (10, 0.5), units (1m30s, 500ms) or days (2d, 1d12h)`},
		{"[lock.a]\nwait = '200000d'", `:2: wait: "200000d" is too long: the longest duration is 106751d`},
	} {
		h := newHost(t)
		write(t, h.user, c.text)
		_, err := h.resolve(nil, nil)
		wantError(t, err, h.user+c.want, false)
	}
}

// The stronger file does not excuse what is wrong in the weaker one.
func TestBothFilesAreChecked(t *testing.T) {
	h := newHost(t)
	write(t, h.user, "[defaults]\nmax = 1")
	write(t, h.system, "[defaults]\nmax = 'one'")
	_, err := h.resolve(flags{"max": {"2"}}, nil)
	wantError(t, err, h.system+":2: max: must be an integer without quotes", false)
}

// What is refused is refused with file and line, and no file makes golock panic.
func FuzzFile(f *testing.F) {
	for _, s := range []string{
		"[defaults]\nstore = 'local'\nmax = 3\nwait = 0.5\ntree = true\nok-exit = [1, 'x']\n[lock.\"a.b\"]\nsignal = 9\n",
		"lock = { a = { max = 1 }, b.wait = '2d' }\n", "[lock]\na.max = 1\na.wait = 1\n[lock.b]\nmax=2\n", "[lock.a]\n[lock]\n[defaults]\n",
		"defaults.max = 1\n[defaults]\n", "[lock.a.b]\n", "max = '''\n", "[[lock]]\n", "[defaults]\nmax = 1\r\nmax = 2\r\n", "\xef\xbb\xbf[defaults]\n",
		"lock.a = {max = 1,\n\n wait = 2,}\nlock.a.signal = 'X'\n", "#", "[", "[defaults]\nwait = 1979-05-27\n", "[lock]\n'' = {}\n[lock.'']\n",
	} {
		f.Add(s)
	}
	h := newHost(f) // one for all: directories are slow
	f.Fuzz(func(t *testing.T, text string) {
		h.t = t
		write(t, h.system, text)
		_, err := h.resolve(nil, nil)
		if err == nil || len(text) > 1<<20 {
			return
		}
		var e *config.Error
		place := regexp.QuoteMeta(h.system) + `:([1-9][0-9]*): .`
		found := regexp.MustCompile(place).FindStringSubmatch(err.Error())
		if !errors.As(err, &e) || found == nil {
			t.Fatalf("error without file and line: %v", err)
		}
		if line, _ := strconv.Atoi(found[1]); line > 1+strings.Count(text, "\n") {
			t.Fatalf("no such line: %v", err)
		}
	})
}
