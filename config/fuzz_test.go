package config_test

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/pelletier/go-toml/v2"

	"golock/config"
)

// What go-toml reads, and nothing else, are the values; what is refused is refused
// with file and line.
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
		if err != nil {
			var e *config.Error
			place := regexp.QuoteMeta(h.system) + `:[1-9][0-9]*: .`
			if !errors.As(err, &e) || !regexp.MustCompile(place).MatchString(err.Error()) {
				if len(text) > 1<<20 {
					return
				}
				t.Fatalf("error without file and line: %v", err)
			}
			if e.Source.Line() > 1+strings.Count(text, "\n") {
				t.Fatalf("no such line: %v", err)
			}
			return
		}

		var oracle struct {
			Defaults map[string]any
			Lock     map[string]map[string]any
		}
		if err := toml.Unmarshal([]byte(text), &oracle); err != nil {
			t.Fatalf("accepted, but go-toml says: %v", err)
		}
		compare(t, h.mustResolve(nil, nil), oracle.Defaults, nil)
		for name, lock := range oracle.Lock {
			compare(t, h.mustResolve(flags{"name": {name}}, nil), lock, oracle.Defaults)
		}
	})
}

// compare checks that the values are those of the first table, where it has
// them, and of the second.
func compare(t *testing.T, v *config.Values, first, second map[string]any) {
	t.Helper()
	for _, s := range settings {
		if s.NotInFile || s.Group != "" && s.Key != "max" && s.Key != "wait" {
			continue
		}
		want, ok := first[s.Key]
		if !ok && !rivals(first, s) {
			want, ok = second[s.Key]
		}
		if _, given := v.Given(s.Key); given != ok {
			t.Fatalf("%s: given is %v, go-toml: %v", s.Key, given, want)
		}
		if !ok {
			continue
		}
		var got any
		switch s.Kind {
		case config.Int:
			got = v.Int(s.Key, math.MinInt, math.MaxInt)
		case config.Bool:
			got = v.Bool(s.Key)
		case config.Duration:
			d := v.Duration(s.Key)
			got, want = d, duration(want, d)
		case config.List:
			got = v.List(s.Key)
			if _, array := want.([]any); !array {
				want = []any{want}
			}
		default:
			got = v.Text(s.Key)
		}
		if v.Err() != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("%s = %v, %v, go-toml: %v", s.Key, got, v.Err(), want)
		}
	}
}

// rivals reports whether a table has an alternative to the setting.
func rivals(table map[string]any, s config.Setting) bool {
	for _, other := range settings {
		if _, ok := table[other.Key]; ok && s.Group != "" && other.Group == s.Group {
			return true
		}
	}
	return false
}

// duration returns what a value of go-toml means. A float has fewer digits than
// the text that got was made of, and may be as far from it as that.
func duration(value any, got time.Duration) time.Duration {
	if f, ok := value.(float64); ok {
		if math.Abs(got.Seconds()-f) <= 1e-9+f*1e-15 {
			return got
		}
		return -2
	}
	d, err := config.ParseDuration(fmt.Sprint(value))
	if err != nil {
		return -3
	}
	return d
}
