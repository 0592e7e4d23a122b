//go:build integration

// Package hostile_test attacks the program from outside: other users in the
// same directory, names and texts made to steer terminals and shells, servers
// that lie, mistakes that could show a password, and numbers at the end of what
// they can be.
package hostile_test

import (
	"encoding/binary"
	"fmt"
	"hash/adler32"
	"os"
	"strings"
	"testing"

	"golock/test/testkit"
)

// The users that play in these tests, beside root.
const (
	attacker = 20001
	victim   = 20002
)

func TestMain(m *testing.M) {
	if os.Geteuid() != 0 {
		fmt.Fprintln(os.Stderr, "these tests need root, to be different users")
		os.Exit(1)
	}
	os.Exit(testkit.Main(m, 12))
}

// sharedLocal makes a store that all users may write to.
func sharedLocal(t *testing.T) (s *testkit.Sandbox, dir string) {
	t.Helper()
	dir = testkit.Place(t, 0o1777)
	return testkit.OnStore(t, "local://"+dir), dir
}

// command prepares a golock as a user, with a few hundred MiB of memory: one that grows without
// bound dies.
func command(s *testkit.Sandbox, uid int, args ...string) *testkit.Command {
	return s.Golock(args...).By("sh", "-c", `ulimit -d 400000; exec "$0" "$@"`).As(uid)
}

// as runs golock as a user to its end.
func as(s *testkit.Sandbox, uid int, args ...string) testkit.Result {
	s.T.Helper()
	return command(s, uid, args...).Run()
}

// holder is a run that lasts until the end of the test, or until it is told.
type holder struct {
	*testkit.Process
	id string // GOLOCK_ID
}

func hold(s *testkit.Sandbox, uid int, args ...string) *holder {
	s.T.Helper()
	args = append(append([]string{"run"}, args...), "--", "sh", "-c", `echo "$GOLOCK_ID"; read end`)
	p := command(s, uid, args...).Start()
	return &holder{p, p.Line()}
}

// judge fails the test unless golock ended with one of its own codes and without a panic.
func judge(t testing.TB, what string, r testkit.Result) {
	t.Helper()
	switch r.Code {
	case 0, 1, 64, 69, 75, 78, 79:
	default:
		t.Errorf("%s: %v", what, r)
	}
	if strings.Contains(r.Stderr, "panic") || strings.Contains(r.Stderr, "goroutine") {
		t.Errorf("%s: %v", what, r)
	}
}

// says fails the test unless golock ended with that code and printed all of the words.
func says(t testing.TB, what string, r testkit.Result, code int, words ...string) {
	t.Helper()
	if r.Code != code {
		t.Errorf("%s: %v, want exit code %d", what, r, code)
	}
	for _, w := range words {
		if !strings.Contains(r.Stdout+r.Stderr, w) {
			t.Errorf("%s: %v, want something about %q", what, r, w)
		}
	}
}

// The layout of a lock file of the store local, as far as an attacker needs it.
const (
	headerSize = 4096
	recordSize = 1024
	nameEnd    = 48 + 255
)

// forge changes a record of a lock file and makes its checksum right again.
func forge(t testing.TB, path string, index int, change func(record []byte)) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	testkit.Must(t, err)
	defer f.Close()
	b := make([]byte, recordSize)
	_, err = f.ReadAt(b, headerSize+int64(index)*recordSize)
	testkit.Must(t, err)
	change(b)
	signRecord(b)
	_, err = f.WriteAt(b, headerSize+int64(index)*recordSize)
	testkit.Must(t, err)
}

func signRecord(b []byte) {
	length := 128 + 3*int(binary.LittleEndian.Uint16(b[52:])) + int(binary.LittleEndian.Uint16(b[54:])) + int(binary.LittleEndian.Uint16(b[6:]))
	binary.LittleEndian.PutUint32(b, adler32.Checksum(b[4:min(length, recordSize)]))
}
