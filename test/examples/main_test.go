//go:build integration

// Package examples_test runs what is in docs/examples/: with a cron daemon, make and a compiler,
// databases, and a test that plays systemd.
package examples_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golock/locks/sql/sqltest"
	"golock/test/testkit"
)

var examples, _ = filepath.Abs("../../docs/examples")

func TestMain(m *testing.M) {
	// The test binary is also the service that the systemd examples start.
	if len(os.Args) > 1 && os.Args[1] == "play" {
		os.Exit(play(os.Args[2]))
	}
	os.Exit(testkit.Main(m, 8))
}

// sandbox is one with a copy of an example ("": none), its programs in bin, and GOLOCK_STORE.
func sandbox(t *testing.T, example, store string) *testkit.Sandbox {
	t.Helper()
	s := testkit.OnStore(t, store)
	s.Env[0] = strings.Replace(s.Env[0], "PATH=", "PATH="+s.Path("bin")+":", 1)
	if example != "" {
		// By another process, so that no fork of this one has a script open for writing (ETXTBSY).
		testkit.Output(t, "", "cp", "-R", "--preserve=mode", filepath.Join(examples, example)+"/.", s.Dir)
	}
	return s
}

// onDatabase is a sandbox with an example whose data are in the database of its store.
func onDatabase(t *testing.T, example string, server *sqltest.Server) *testkit.Sandbox {
	t.Helper()
	db := server.NewDatabase(t)
	s := sandbox(t, example, server.URL(db))
	s.Env = append(s.Env, "HOME="+s.Dir, "PGHOST="+server.Socket, fmt.Sprint("PGPORT=", server.Port),
		"PGUSER="+server.User, "PGDATABASE="+db)
	s.Write(".my.cnf", "[client]\nuser="+server.User+"\npassword=\""+sqltest.Password+"\"\nsocket="+server.Socket+
		"\n[mysql]\ndatabase="+db+"\n")
	return s
}

// succeeds waits for an end with success and without a message, and returns what was printed.
func succeeds(p *testkit.Process) string {
	p.T.Helper()
	return p.Expects(0).Quiet(p.T).Stdout
}

// read returns the text of an example's file.
func read(t *testing.T, path ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(append([]string{examples}, path...)...))
	testkit.Must(t, err)
	return string(text)
}

func lines(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == '\n' })
}

// most returns how many were inside at once at the most, by a log of lines "begin ..." and
// "end ...", each written inside by one write to a file opened for append.
func most(log string) int {
	n, top := 0, 0
	for _, line := range lines(log) {
		switch word, _, _ := strings.Cut(line, " "); word {
		case "begin":
			n++
		case "end":
			n--
		}
		top = max(top, n)
	}
	return top
}
