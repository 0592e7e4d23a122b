// Package hostile_test attacks the program from outside: other users in the
// same directory, names and texts made to steer terminals and shells, servers
// that lie, mistakes that could show a password, and numbers at the end of what
// they can be.
//
// This file pins nothing. It builds golock once and runs it as different users,
// which takes root.
package hostile_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"hash/adler32"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks/sql/sqltest"
)

// limit is how long a test waits for something that has to happen.
const limit = 30 * time.Second

// The users that play in these tests, beside root.
const (
	attacker = 20001
	victim   = 20002
)

var golock string // the program under test, which every user may execute

func TestMain(m *testing.M) { os.Exit(setUp(m)) }

func setUp(m *testing.M) int {
	fail := func(err error) int {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if os.Geteuid() != 0 {
		return fail(fmt.Errorf("these tests need root, to be different users"))
	}
	dir, err := os.MkdirTemp("", "golock-hostile-")
	if err != nil {
		return fail(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		return fail(err)
	}
	golock = filepath.Join(dir, "golock")
	build := exec.Command("go", "build", "-trimpath", "-o", golock, "../..")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fail(fmt.Errorf("building golock: %w\n%s", err, out))
	}
	flag.Parse()
	_ = flag.Set("test.parallel", "8") // they mostly wait
	return sqltest.Main(m)
}

// place makes a directory that every user can walk to.
func place(t testing.TB, mode uint32) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "hostile-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	must(t, unix.Chmod(dir, mode))
	return dir
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// await returns once cond holds.
func await(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !cond(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited %v in vain: %s", limit, what)
		}
	}
}

// start is a program that is to run as a user, not yet started. golock is not
// given more memory than a few hundred MiB: one that grows without bound dies.
func start(uid uint32, argv ...string) *exec.Cmd {
	if argv[0] == golock {
		argv = append([]string{"sh", "-c", `ulimit -d 400000; exec "$0" "$@"`}, argv...)
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = "/"
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "GOLOCK_") && !strings.HasPrefix(v, "PG") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if uid != 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uid, Gid: uid}
	}
	return cmd
}

// result is how a program ended.
type result struct {
	out, err string
	code     int
	took     time.Duration
	cpu      time.Duration
}

// finish runs a program to its end.
func finish(t testing.TB, cmd *exec.Cmd) result {
	t.Helper()
	var out, err bytes.Buffer
	if cmd.Stdout == nil {
		cmd.Stdout = &out
	}
	cmd.Stderr = &err
	cmd.WaitDelay = limit
	began := time.Now()
	must(t, cmd.Start())
	timer := time.AfterFunc(limit, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	_ = cmd.Wait()
	s := cmd.ProcessState
	return result{out: out.String(), err: err.String(), code: s.ExitCode(), took: time.Since(began), cpu: s.UserTime() + s.SystemTime()}
}

// as runs golock as a user to its end.
func as(t testing.TB, uid uint32, args ...string) result {
	t.Helper()
	return finish(t, start(uid, append([]string{golock}, args...)...))
}

// holder is a run that lasts until the end of the test, or until it is told.
type holder struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	err *bytes.Buffer
	id  string // GOLOCK_ID
}

// hold has a user run something until the end of the test.
func hold(t testing.TB, uid uint32, args ...string) *holder {
	t.Helper()
	h := &holder{err: &bytes.Buffer{}}
	h.cmd = start(uid, append(append([]string{golock, "run"}, args...), "--", "sh", "-c", `echo "$GOLOCK_ID"; read end`)...)
	h.cmd.Stderr = h.err
	in, err := h.cmd.StdinPipe()
	must(t, err)
	out, err := h.cmd.StdoutPipe()
	must(t, err)
	must(t, h.cmd.Start())
	h.in = in
	t.Cleanup(func() {
		in.Close()
		_ = h.cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("%q holds nothing: %v, %s", args, err, h.err)
	}
	h.id = strings.TrimSpace(line)
	return h
}

// bystander is a process of a user that has to do with nothing.
func bystander(t testing.TB, uid uint32) *exec.Cmd {
	t.Helper()
	cmd := start(uid, "sleep", "1000")
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}

// unhurt reports whether a process lives and no signal waits for it.
func unhurt(cmd *exec.Cmd) bool {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, cmd.Process.Pid, &info, unix.WEXITED|unix.WSTOPPED|unix.WNOHANG|unix.WNOWAIT, nil)
	return err == nil && info.Signo == 0
}

// lockFile is the only file of a store local of which that is the beginning.
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
	must(t, err)
	defer f.Close()
	b := make([]byte, recordSize)
	_, err = f.ReadAt(b, headerSize+int64(index)*recordSize)
	must(t, err)
	change(b)
	signRecord(b)
	_, err = f.WriteAt(b, headerSize+int64(index)*recordSize)
	must(t, err)
}

func signRecord(b []byte) {
	length := 128 + 3*int(binary.LittleEndian.Uint16(b[52:])) + int(binary.LittleEndian.Uint16(b[54:])) + int(binary.LittleEndian.Uint16(b[6:]))
	binary.LittleEndian.PutUint32(b, adler32.Checksum(b[4:min(length, recordSize)]))
}

// forgeHeader changes the first page and makes its checksum right again.
func forgeHeader(t testing.TB, path string, change func(page []byte)) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	defer f.Close()
	b := make([]byte, headerSize)
	_, err = f.ReadAt(b, 0)
	must(t, err)
	change(b)
	binary.LittleEndian.PutUint32(b[12:], adler32.Checksum(b[16:nameEnd]))
	_, err = f.WriteAt(b, 0)
	must(t, err)
}

// setCommand writes what a record says of its command.
func setCommand(b []byte, words ...string) {
	at := 128 + 3*int(binary.LittleEndian.Uint16(b[52:])) + int(binary.LittleEndian.Uint16(b[54:]))
	n := copy(b[at:], strings.Join(words, "\x00")+"\x00")
	binary.LittleEndian.PutUint16(b[6:], uint16(n))
}

func bootTime() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts)
	return ts.Nano()
}

// says fails the test if a program did not end with a code, or does not tell
// all of the words.
func says(t testing.TB, what string, r result, code int, words ...string) {
	t.Helper()
	if r.code != code {
		t.Errorf("%s: exit code %d, want %d: %s%s", what, r.code, code, r.out, r.err)
	}
	for _, w := range words {
		if !strings.Contains(r.out+r.err, w) {
			t.Errorf("%s: want something about %q: %s%s", what, w, r.out, r.err)
		}
	}
}
