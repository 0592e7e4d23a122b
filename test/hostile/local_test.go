//go:build integration

package hostile_test

import (
	"encoding/binary"
	"fmt"
	"hash/adler32"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks"
	"golock/test/testkit"
)

// What other users of a shared directory of the store local can do. They may keep locks for ever.
// They cannot make golock signal a process that is not theirs, crash or hang.

// A record names the process that an eviction signals. A forged one gets no process of another user
// signalled, not even by root.
func TestForgedRecordSignalsNobody(t *testing.T) {
	t.Parallel()
	s, dir := sharedLocal(t)
	hold(s, attacker, "--name", "x", "--replace", "running")
	command(s, attacker, "run", "--name", "x", "--", "true").Begin()
	testkit.Eventually(t, "the second waits", func() bool {
		return strings.Contains(as(s, attacker, "ls", "x").Stdout, "waiting")
	})
	file := testkit.OnlyFile(t, dir+"/x.*.lock")
	for _, uid := range []int{0, victim} {
		target := s.Exec("sleep", "1000").As(uid).Begin()
		for index := range 2 {
			forge(t, file, index, func(b []byte) {
				binary.LittleEndian.PutUint32(b[48:], uint32(target.PID))
				binary.LittleEndian.PutUint64(b[64:], uint64(locks.BootTime()))
			})
		}
		says(t, "break", as(s, uid, "break", "--name", "x", "--all"), 69, "does not have the lock")
		// Who replaces waits for those that cannot be told.
		says(t, "run --replace", as(s, uid, "run", "--name", "x", "--replace", "running", "-w", "0.2", "--", "true"), 75)
		if !testkit.Alive(target.PID) {
			t.Errorf("the record of a lock had a process of user %d signalled", uid)
		}
	}
}

// Files that look like the lock file of a name, and are not, hide nothing.
func TestDecoys(t *testing.T) {
	t.Parallel()
	s, dir := sharedLocal(t)
	h := hold(s, victim, "--name", "pay")
	file := testkit.OnlyFile(t, dir+"/pay.*.lock")
	text, err := os.ReadFile(file)
	testkit.Must(t, err)
	for _, decoy := range []string{"!", "\x1b[2J", "zzz"} {
		path := filepath.Join(dir, decoy+strings.TrimPrefix(filepath.Base(file), "pay"))
		testkit.Must(t, os.WriteFile(path, text, 0o666))
		testkit.Must(t, os.Chmod(path, 0o666))
		testkit.Must(t, os.Chown(path, attacker, attacker))
	}
	testkit.Must(t, os.Symlink("/etc/passwd", filepath.Join(dir, "#"+strings.TrimPrefix(filepath.Base(file), "pay"))))
	r := as(s, victim, "ls")
	if strings.Count(r.Stdout, "holding") != 1 || strings.Contains(r.Stdout+r.Stderr, "\x1b") {
		t.Errorf("ls: %q %q", r.Stdout, r.Stderr)
	}
	says(t, "held", as(s, victim, "held", "--id", h.id), 0)
	says(t, "break", as(s, victim, "break", "--name", "pay"), 0)
	testkit.Eventually(t, "the holder has ended", func() bool { return !testkit.Alive(h.PID) })
}

// A lock file full of waiters that do not exist holds nobody up.
func TestDeadWaiters(t *testing.T) {
	t.Parallel()
	s, dir := sharedLocal(t)
	says(t, "run", as(s, attacker, "run", "--name", "x", "--", "true"), 0)
	file := testkit.OnlyFile(t, dir+"/x.*.lock")
	const most = 1 << 14
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	testkit.Must(t, err)
	defer f.Close()
	page := make([]byte, headerSize)
	_, err = f.ReadAt(page, 0)
	testkit.Must(t, err)
	binary.LittleEndian.PutUint32(page[20:], most)
	binary.LittleEndian.PutUint64(page[24:], most+1)
	binary.LittleEndian.PutUint32(page[12:], adler32.Checksum(page[16:nameEnd]))
	_, err = f.WriteAt(page, 0)
	testkit.Must(t, err)
	all := make([]byte, most*recordSize)
	for i := range most {
		b := all[i*recordSize : (i+1)*recordSize]
		b[4] = 1 // waits
		binary.LittleEndian.PutUint64(b[8:], uint64(i))
		binary.LittleEndian.PutUint32(b[32:], 1)
		binary.LittleEndian.PutUint32(b[36:], 1)
		signRecord(b)
	}
	_, err = f.WriteAt(all, headerSize)
	testkit.Must(t, err)
	r := as(s, victim, "ls")
	judge(t, "dead waiters: ls", r)
	r = as(s, victim, "run", "--name", "x", "-n", "--", "true")
	judge(t, "dead waiters: run", r)
	if r.Code != 0 || r.CPU > testkit.Slowed(3*time.Second) {
		t.Errorf("dead waiters: exit code %d after %v of work: %s", r.Code, r.CPU, r.Stderr)
	}
}

// showPeak runs a command and prints the most memory that it had, in KiB. The kernel counts what a process
// had before its execve, too, so a small program must fork it (getrusage(2)).
const showPeak = `
import os, sys
pid = os.fork()
if pid == 0:
    os.execvp(sys.argv[1], sys.argv[1:])
_, status, usage = os.wait4(pid, 0)
sys.stderr.write("peak: %d" % usage.ru_maxrss)
sys.exit(os.waitstatus_to_exitcode(status))
`

// measured runs golock as a user and gives the most memory that it had, in KiB.
func measured(t testing.TB, s *testkit.Sandbox, uid int, args ...string) (r testkit.Result, peak int) {
	t.Helper()
	r = command(s, uid, args...).By("/usr/bin/python3", "-c", showPeak).Run()
	said, kib, _ := strings.Cut(r.Stderr, "peak: ")
	peak, err := strconv.Atoi(kib)
	testkit.Must(t, err)
	r.Stderr = said
	return r, peak
}

// A lock file as large as one may be, full of holds without a process, costs its readers little, and
// one break ends them all.
func TestManyHolds(t *testing.T) {
	t.Parallel()
	s, dir := sharedLocal(t)
	says(t, "run", as(s, attacker, "run", "--name", "x", "--hold", "1h", "--", "true"), 0)
	file := testkit.OnlyFile(t, dir+"/x.*.lock")
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	testkit.Must(t, err)
	defer f.Close()
	const most = 1 << 14
	all := make([]byte, headerSize+most*recordSize)
	_, err = f.ReadAt(all[:headerSize+recordSize], 0)
	testkit.Must(t, err)
	binary.LittleEndian.PutUint32(all[20:], most)
	binary.LittleEndian.PutUint64(all[24:], most+1)
	binary.LittleEndian.PutUint32(all[12:], adler32.Checksum(all[16:nameEnd]))
	hold := all[headerSize : headerSize+recordSize]
	for i := range most {
		b := all[headerSize+i*recordSize:][:recordSize]
		copy(b, hold)
		binary.LittleEndian.PutUint64(b[8:], uint64(i))
		binary.LittleEndian.PutUint64(b[16:], uint64(i))       // ID
		binary.LittleEndian.PutUint32(b[36:], 0)               // max
		binary.LittleEndian.PutUint16(b[6:], recordSize-128-3) // words without letters
		binary.LittleEndian.PutUint16(b[128:], uint16(i))      // slot
		clear(b[131:])
		signRecord(b)
	}
	_, err = f.WriteAt(all, 0)
	testkit.Must(t, err)
	// Some 30 MiB live at once; when the collector runs decides how much more there is. Without a bound,
	// four times as many holds took 1.6 GB.
	const mostPeak = 128 << 10 // KiB
	for _, args := range [][]string{{"ls", "--json"}, {"ls", "x"}, {"run", "--name", "x", "-n", "--", "true"}, {"clean", "x"}, {"break", "x"}} {
		r, peak := measured(t, s, victim, args...)
		judge(t, fmt.Sprint("many holds: ", args), r)
		if peak > mostPeak || r.CPU > 10*time.Second {
			t.Errorf("many holds: %v: %v of work, %d KiB", args, r.CPU, peak)
		}
	}
	says(t, "run", as(s, victim, "run", "--name", "x", "-n", "--", "true"), 0)
}

// A user who may read a lock file can lock it for ever. A run with -n says so in time, and ls waits
// once, not for each such file.
// Slow: golock's own patience is ten seconds.
func TestGateKeptShut(t *testing.T) {
	t.Parallel()
	s, dir := sharedLocal(t)
	for i := range 10 {
		says(t, "run", as(s, victim, "run", "--name", fmt.Sprint("x", i), "--", "true"), 0)
	}
	files, err := filepath.Glob(dir + "/*.lock")
	testkit.Must(t, err)
	for _, file := range files { // of this process; whose it is does not matter
		fd, err := unix.Open(file, unix.O_RDWR|unix.O_CLOEXEC, 0)
		testkit.Must(t, err)
		defer unix.Close(fd)
		const gate = 1 << 59
		testkit.Must(t, unix.FcntlFlock(uintptr(fd), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Start: gate, Len: 1}))
	}
	// At the same time: each waits for golock's own limit.
	var calls []*testkit.Command
	for _, args := range [][]string{{"ls"}, {"clean"}, {"run", "--name", "x0", "-n", "--", "true"}} {
		calls = append(calls, command(s, victim, args...))
	}
	for _, r := range testkit.RunAll(calls) {
		r.Expect(t, 69, "being changed by")
	}
}
