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
	"path/filepath"
	"strings"
	"testing"

	"golock/locks/redis/redistest"
	"golock/locks/sql/sqltest"
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
	testkit.Parallel(12) // they mostly wait
	os.Exit(testkit.Main(m, redistest.Close, sqltest.Close))
}

// redisURL is that of a store on the shared server for other users, too.
func redisURL(t testing.TB) string {
	t.Helper()
	server := redistest.Shared(t)
	return strings.Replace(redistest.StoreURL(t), server.SocketURL(), server.URL(), 1)
}

// sharedLocal and sharedDirectory make a store that all users may write to.
func sharedLocal(t *testing.T) (s *testkit.Sandbox, dir string) {
	t.Helper()
	dir = testkit.Place(t, 0o1777)
	return testkit.OnStore(t, "local://"+dir), dir
}

func sharedDirectory(t *testing.T) (s *testkit.Sandbox, dir string) {
	t.Helper()
	dir = testkit.Place(t, 0o777)
	return testkit.OnStore(t, "mkdir://"+dir), dir
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

// bystander starts a process of a user that has nothing to do with golock.
func bystander(s *testkit.Sandbox, uid int) *testkit.Process {
	s.T.Helper()
	return s.Exec("sleep", "1000").As(uid).Begin()
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

// lockFile is the only lock file of a store local whose name begins so.
func lockFile(t testing.TB, dir, begin string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, begin+".*.lock"))
	if err != nil || len(found) != 1 {
		t.Fatalf("lock files %q: %v", found, err)
	}
	return found[0]
}

// The layout of a lock file of the store local, as far as an attacker needs it.
const (
	headerSize = 4096
	recordSize = 1024
	nameAt     = 48
	nameEnd    = nameAt + 255
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

// forgeHeader changes the first page and makes its checksum right again.
func forgeHeader(t testing.TB, path string, change func(page []byte)) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	testkit.Must(t, err)
	defer f.Close()
	b := make([]byte, headerSize)
	_, err = f.ReadAt(b, 0)
	testkit.Must(t, err)
	change(b)
	binary.LittleEndian.PutUint32(b[12:], adler32.Checksum(b[16:nameEnd]))
	_, err = f.WriteAt(b, 0)
	testkit.Must(t, err)
}

// setCommand writes what a record says of its command.
func setCommand(b []byte, words ...string) {
	at := 128 + 3*int(binary.LittleEndian.Uint16(b[52:])) + int(binary.LittleEndian.Uint16(b[54:]))
	n := copy(b[at:], strings.Join(words, "\x00")+"\x00")
	binary.LittleEndian.PutUint16(b[6:], uint16(n))
}
