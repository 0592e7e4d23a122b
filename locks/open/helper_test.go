package open_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks"
	. "golock/locks/locktest"
	"golock/locks/open"
	"golock/test/testkit"
)

// Tests that need another process run this binary again: with the variable set
// it is no test but a child that does what it is told (serveChild).
const childVariable = "LOCKTEST_OPEN_CHILD"

var background = context.Background()

// freePort finds count ports in a row that nobody has, among those that no other
// test uses (locks/locktest/server).
func freePort(t testing.TB, address string, count int) int {
	t.Helper()
	for range 200 {
		first := 17000 + rand.IntN(1990)
		free := true
		for port := first; port < first+count && free; port++ {
			s, err := open.Store(fmt.Sprintf("bind://%s:%d", address, port))
			testkit.Must(t, err)
			l, err := Try(t, s, 1)
			if free = err == nil; free {
				Release(t, l)
			}
		}
		if free {
			return first
		}
	}
	t.Fatal("no free ports")
	return 0
}

// kinds gives a URL that nobody has used before, of each kind of plain store.
func kinds() map[string]func(t testing.TB) string {
	return map[string]func(t testing.TB) string{
		"flock": func(t testing.TB) string { return "flock://" + filepath.Join(t.TempDir(), "lock") },
		"fcntl": func(t testing.TB) string { return "fcntl://" + filepath.Join(t.TempDir(), "lock") },
		"port":  func(t testing.TB) string { return fmt.Sprintf("bind://127.0.0.1:%d", freePort(t, "127.0.0.1", 5)) },
		"port6": func(t testing.TB) string { return fmt.Sprintf("bind://[::1]:%d", freePort(t, "[::1]", 5)) },
		"socket": func(t testing.TB) string {
			dir, err := os.MkdirTemp("", "golock-bind-") // the path of a socket must be short
			testkit.Must(t, err)
			t.Cleanup(func() { os.RemoveAll(dir) })
			return "bind://" + filepath.Join(dir, "sock")
		},
		"abstract": func(testing.TB) string { return fmt.Sprintf("bind://@golock-test-%d-%x", os.Getpid(), rand.Uint64()) },
	}
}

// onEach runs a test on each kind of store; counting leaves out those that have
// one unit.
func onEach(t *testing.T, counting bool, test func(t *testing.T, url string)) {
	for name, fresh := range kinds() {
		if counting && (name == "flock" || name == "fcntl") {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, fresh(t))
		})
	}
}

func newStore(t testing.TB, url string) locks.Store {
	t.Helper()
	s, err := open.Store(url)
	testkit.Must(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

// busy reports whether there is no slot now. It takes none.
func busy(t testing.TB, s locks.Store, limit int) bool {
	t.Helper()
	l, err := Try(t, s, limit)
	if IsBusy(err) {
		return true
	}
	testkit.Must(t, err)
	Release(t, l)
	return false
}

func slots(l locks.Lease) string { return fmt.Sprint(l.Grant().Slots) }

// call is what a child is told to do, one line each.
type call struct {
	Do     string // a case of serveChild
	URL    string
	Max    int
	NoWait bool
	File   string
	Number int
}

// answer is what it says to that.
type answer struct {
	Err   string
	Busy  bool
	Slots []int
	PID   int
}

func serveChild() {
	var held locks.Lease
	testkit.ServeChild(func(c call) (a answer) {
		var err error
		switch c.Do {
		case "take":
			held, err = takeSlot(c)
			var b *locks.BusyError
			if a.Busy = errors.As(err, &b); err == nil {
				a.Slots = held.Grant().Slots
			}
		case "release":
			err = held.Release(background)
		case "spawn": // a sleeping process that inherits the slot
			a.PID, err = testkit.SpawnHeir(held.Files())
		case "meet": // Number times: take, and meet nobody who has the same slot
			err = meetOften(c)
		default:
			err = errors.New("unknown call " + c.Do)
		}
		if err != nil {
			a.Err = err.Error()
		}
		return a
	})
}

func takeSlot(c call) (locks.Lease, error) {
	s, err := open.Store(c.URL)
	if err != nil {
		return nil, err
	}
	ref, err := locks.NewRef(c.URL)
	if err != nil {
		return nil, err
	}
	r := locks.Request{Ref: ref, Name: c.URL, Claim: locks.Claim{Weight: 1, Max: c.Max}, NoWait: c.NoWait}
	ticket, err := s.Join(background, r)
	if err != nil {
		return nil, err
	}
	return ticket.Wait(background)
}

func meetOften(c call) error {
	for range c.Number {
		l, err := takeSlot(c)
		if err != nil {
			return err
		}
		if err := errors.Join(meet(c.File, l.Grant().Slots[0]), l.Release(background)); err != nil {
			return err
		}
	}
	return nil
}

// meet is an error if somebody else is inside with the same slot. Who is in
// writes so into the slot's place in the file, and finds it unchanged when it
// goes. One that is being killed is not inside any more.
func meet(file string, slot int) error {
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	const width = 10
	read := func() int {
		text := make([]byte, width)
		_, _ = f.ReadAt(text, int64(slot*width))
		pid, _ := strconv.Atoi(strings.Trim(string(text), " \x00"))
		return pid
	}
	write := func(pid int) error {
		_, err := f.WriteAt(fmt.Appendf(nil, "%*d", width, pid), int64(slot*width))
		return err
	}
	if other := read(); lives(other) {
		return fmt.Errorf("slot %d: process %d is inside", slot, other)
	}
	if err := write(os.Getpid()); err != nil {
		return err
	}
	time.Sleep(time.Duration(rand.IntN(300)) * time.Microsecond)
	if other := read(); other != os.Getpid() {
		return fmt.Errorf("slot %d: process %d came in", slot, other)
	}
	return write(0)
}

// lives reports whether a process is there and is not on its way out (proc(5),
// flags of /proc/PID/stat).
func lives(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	const exiting = 4 // PF_EXITING
	field := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	flags, _ := strconv.Atoi(field[6])
	return flags&exiting == 0 && field[0] != "Z"
}

// child is another process of this test.
type child = testkit.Child[call, answer]

func startChild(t testing.TB) *child {
	t.Helper()
	return testkit.StartChild[call, answer](t, childVariable)
}

func endProcess(t testing.TB, pid int) {
	t.Helper()
	testkit.Must(t, unix.Kill(pid, unix.SIGKILL))
}

func contains(t testing.TB, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one about %q", words)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q says nothing of %q", err, w)
		}
	}
}
