package open_test

import (
	"strings"
	"testing"

	"golock/locks/locktest"
	"golock/locks/open"
	"golock/test/testkit"
)

// What every plain store promises: flock, fcntl, and bind in all its forms. The suite of
// all stores asks them for what a store without a queue can promise.

func TestConformance(t *testing.T) {
	for name, fresh := range kinds() {
		t.Run(name, func(t *testing.T) {
			locktest.Run(t, locktest.Engine{Fresh: func(t *testing.T) string { return fresh(t) }, Open: open.Store})
		})
	}
}

// There are as many units as names or ports fit.
func TestBindUnits(t *testing.T) {
	for url, units := range map[string]int{
		"bind://127.0.0.1:65535":              1,
		"bind://127.0.0.1:65530":              6,
		"bind://127.0.0.1:7001":               256,
		"bind://@a":                           256,
		"bind://@" + strings.Repeat("x", 105): 1,
		"bind://@" + strings.Repeat("x", 104): 10,
		"bind:///" + strings.Repeat("x", 106): 1,
		"bind:///" + strings.Repeat("x", 103): 100,
		"flock:///x":                          1,
	} {
		s, err := open.Store(url)
		testkit.Must(t, err)
		if got := s.Abilities().MaxUnits; got != units {
			t.Errorf("%s: %d units, want %d", url, got, units)
		}
	}
}
