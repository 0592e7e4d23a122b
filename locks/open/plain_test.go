package open_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"golock/locks"
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

// A waiter is woken, and one that leaves leaves nothing behind.
func TestPlainWait(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		s := newStore(t, url)
		first := TakeUnit(t, s, 1)
		left := QueueOf[locks.Lease](t, s, "label")
		left.Cancel()
		left.Ended()
		if left.Err != context.Canceled {
			t.Errorf("Wait = %v", left.Err)
		}
		second := QueueOf[locks.Lease](t, s, "label")
		if !busy(t, s) {
			t.Error("free beside the holder")
		}
		second.Waits()
		Release(t, first)
		l := second.Granted()
		if !busy(t, s) {
			t.Error("the waiter does not hold")
		}
		Release(t, l)
		testkit.Eventually(t, "free", func() bool { return !busy(t, s) })
	})
}

// With kill -9 of the holder the slot is free, unless something lives that
// inherited it; with a release it is free in any case, except for abstract names.
func TestPlainKilledHolder(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		s := newStore(t, url)
		c := startHolder(t, url)
		if !busy(t, s) {
			t.Fatal("the child does not hold")
		}
		c.Kill()
		if busy(t, s) {
			t.Error("the slot is taken by the dead")
		}

		c = startHolder(t, url)
		heir := c.Ask(call{Do: "spawn"}).PID
		c.Kill()
		for range 20 {
			if !busy(t, s) {
				t.Fatal("the slot is free although an heir lives")
			}
		}
		all := List(t, s, "")
		if len(all) != 1 || all[0].PID != heir || all[0].State != locks.Holding {
			t.Errorf("%+v, want the heir %d", all, heir)
		}
		endProcess(t, heir)
		testkit.Eventually(t, "free after the heir", func() bool { return !busy(t, s) })

		if strings.HasPrefix(url, "bind://@") {
			return // locks/bind: TestLeftBehind
		}
		c = startChild(t)
		for range 3 { // each leaves a daemon
			c.Ask(call{Do: "take", URL: url})
			heir = c.Ask(call{Do: "spawn"}).PID
			defer endProcess(t, heir)
			c.Ask(call{Do: "release"})
			if busy(t, s) {
				t.Fatal("a daemon keeps the slot")
			}
			if all := List(t, s, ""); len(all) != 0 {
				t.Errorf("%+v after the release", all)
			}
		}
	})
}

// A nested run is told that it would wait for itself, also if the lock's
// descriptor was not handed on; what is merely called by the same ID waits.
func TestPlainNested(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		s := newStore(t, url)
		outer := TakeUnit(t, s, 1)
		r := NewRequest(t, "label", NoWait)
		r.Within = []locks.Ref{outer.Grant().Ref}
		_, err := s.Join(background, r)
		var busy *locks.BusyError
		if !errors.As(err, &busy) || busy.Inside == nil || *busy.Inside != outer.Grant().Ref {
			t.Errorf("Join = %v", err)
		}
		Release(t, outer)

		startHolder(t, url)
		if _, err = s.Join(background, r); !errors.As(err, &busy) || busy.Inside != nil {
			t.Errorf("Join = %v: the holder is not around us", err)
		}
	})
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
		if got := newStore(t, url).Traits().MaxUnits; got != units {
			t.Errorf("%s: %d units, want %d", url, got, units)
		}
	}
}
