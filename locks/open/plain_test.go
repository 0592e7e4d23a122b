package open_test

import (
	"strings"
	"testing"

	. "golock/locks/locktest"
	"golock/locks/open"
	"golock/test/testkit"
)

// What every plain store promises: flock, fcntl, and bind in all its forms. The suite of
// all stores asks them for what a store without a queue can promise.

func TestConformance(t *testing.T) {
	for name, fresh := range kinds() {
		t.Run(name, func(t *testing.T) {
			Run(t, Engine{Fresh: func(t *testing.T) string { return fresh(t) }, Open: open.Store})
		})
	}
}

// URLs that are wrong, and the part that is.
func TestPlainURLs(t *testing.T) {
	for url, words := range map[string][]string{
		"flock:":                              {"flock:///FILE"},
		"flock:/x":                            {"flock:///FILE"},
		"flock://":                            {"path"},
		"flock:///":                           {"path"},
		"flock://host/x":                      {"host"},
		"flock:///x?wait=1":                   {"options", "?wait=1"},
		"flock:///%zz":                        {"path"},
		"flock:///a%00b":                      {"zero byte"},
		"fcntl://x":                           {"host", "fcntl:///"},
		"mkdir":                               {"mkdir:///DIR", "two slashes"},
		"mkdir:///":                           {"a directory must be named"},
		"excl:///x?ttl=3":                     {"options"},
		"bind:":                               {"bind://127.0.0.1:PORT"},
		"bind://":                             {"address and a port"},
		"bind://7001":                         {"address and a port"},
		"bind://:7001":                        {"address and a port"},
		"bind://127.0.0.1":                    {"address and a port"},
		"bind://localhost:7001":               {"host", "localhost", "IP address"},
		"bind://127.0.0.1:0":                  {"port"},
		"bind://127.0.0.1:65536":              {"port"},
		"bind://127.0.0.1:ssh":                {"port"},
		"bind://0.0.0.0:7001":                 {"host", "all addresses"},
		"bind://[::]:7001":                    {"host", "all addresses"},
		"bind://[::ffff:1.2.3.4]:70":          {"host"},
		"bind://[fe80::1%25lo]:7001":          {"host"},
		"bind://224.0.0.1:7001":               {"host"},
		"bind://127.0.0.1:7001?x":             {"options"},
		"bind://@":                            {"name"},
		"bind://@a%00":                        {"zero byte"},
		"bind://@" + strings.Repeat("x", 200): {"name", "bytes long"},
		"bind:///" + strings.Repeat("x", 200): {"path", "bytes long"},
		"bind:///x#y":                         {"options"},
	} {
		_, err := open.Store(url)
		for _, w := range words {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("%.30s: %v, want something about %q", url, err, w)
			}
		}
	}
	for url, same := range map[string]string{
		"flock:///tmp/a%20b":                  "flock:///tmp/a%20b",
		"flock:///tmp/a b%25":                 "flock:///tmp/a%20b%25",
		"symlink:///mnt/a%20b%25":             "symlink:///mnt/a%20b%25",
		"excl:///x/":                          "excl:///x/",
		"fcntl:///tmp/\xc3\xa4%3F%23":         "fcntl:///tmp/%C3%A4%3F%23",
		"bind://127.0.0.1:7001/":              "bind://127.0.0.1:7001",
		"bind://[0:0::1]:7001":                "bind://[::1]:7001",
		"bind://@a%2Fb/c":                     "bind://@a/b/c",
		"bind://@" + strings.Repeat("x", 104): "bind://@" + strings.Repeat("x", 104),
		"bind:///" + strings.Repeat("x", 106): "bind:///" + strings.Repeat("x", 106),
		"bind:///tmp/with%20blanks":           "bind:///tmp/with%20blanks",
	} {
		s, err := open.Store(url)
		testkit.Must(t, err)
		if s.URL() != same {
			t.Errorf("%s is %s, want %s", url, s.URL(), same)
		}
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
		if got := s.Traits().MaxUnits; got != units {
			t.Errorf("%s: %d units, want %d", url, got, units)
		}
	}
}
