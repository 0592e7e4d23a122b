//go:build integration

package examples_test

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"golock/test/testkit"
)

// freePorts returns the first of two ports of loopback that are free now.
func freePorts(t *testing.T) int {
	t.Helper()
	for range 100 {
		first, err := net.Listen("tcp", "127.0.0.1:0")
		testkit.Must(t, err)
		port := first.Addr().(*net.TCPAddr).Port
		second, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port+1))
		first.Close()
		if err == nil {
			second.Close()
			return port
		}
	}
	t.Fatal("no two free ports")
	return 0
}

// Each store is tried with one command: one run holds, one waits, then that one runs, and the server is
// gone at the end.
func TestTryStores(t *testing.T) {
	t.Parallel()
	for _, store := range []string{"local", "flock", "bind", "mkdir", "redis", "etcd", "mariadb", "postgres"} {
		s := sandbox(t, "stores", "")
		s.Env = append(s.Env, fmt.Sprint("PORT=", freePorts(t)), "PAUSE=0.5")
		p := s.Exec("./try", store).Start()
		var shown []string
		for len(shown) == 0 || shown[len(shown)-1] != "second" { // a line at a time: a server may need long
			shown = append(shown, p.Line())
		}
		p.Expects(0)
		if !slices.Contains(shown, "first") || store != "flock" && !strings.Contains(strings.Join(shown, "\n"), "holding") {
			t.Errorf("%s: %q", store, shown)
		}
		s.NoneLeft()
	}
}

// A fleet of three hosts: one runs the job of a tick, and when the leader's network fails another leads.
func TestTryFleet(t *testing.T) {
	t.Parallel()
	testkit.NeedRoot(t)
	s := sandbox(t, "stores", "")
	r := s.Exec("./fleet").Run()
	if r.Code != 0 || strings.Count(r.Stdout, "runs the job") != 1 || !strings.Contains(r.Stdout, "a leads\n") ||
		!strings.Contains(r.Stdout, "b leads\n") {
		t.Errorf("%v", r)
	}
	s.NoneLeft()
}
