package open_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

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

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		serveChild()
		os.Exit(0)
	}
	os.Exit(testkit.Library(m))
}

// freePort finds five ports in a row that nobody has, among those that no other
// test uses (locks/locktest/server).
func freePort(t testing.TB, address string) int {
	t.Helper()
	for range 200 {
		first := 17000 + rand.IntN(1990)
		free := true
		for port := first; port < first+5 && free; port++ {
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
		"port":  func(t testing.TB) string { return fmt.Sprintf("bind://127.0.0.1:%d", freePort(t, "127.0.0.1")) },
		"port6": func(t testing.TB) string { return fmt.Sprintf("bind://[::1]:%d", freePort(t, "[::1]")) },
		"socket": func(t testing.TB) string {
			dir, err := os.MkdirTemp("", "golock-bind-") // the path of a socket must be short
			testkit.Must(t, err)
			t.Cleanup(func() { os.RemoveAll(dir) })
			return "bind://" + filepath.Join(dir, "sock")
		},
		"abstract": func(testing.TB) string { return fmt.Sprintf("bind://@golock-test-%d-%x", os.Getpid(), rand.Uint64()) },
	}
}

// onEach runs a test on each kind of store.
func onEach(t *testing.T, test func(t *testing.T, url string)) {
	for name, fresh := range kinds() {
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
func busy(t testing.TB, s locks.Store) bool {
	t.Helper()
	l, err := Try(t, s, 1)
	if IsBusy(err) {
		return true
	}
	testkit.Must(t, err)
	Release(t, l)
	return false
}

// call is what a child is told to do, one line each.
type call struct {
	Do  string // a case of serveChild
	URL string
}

// answer is what it says to that.
type answer struct {
	Err string
	PID int
}

func serveChild() {
	var held locks.Lease
	testkit.ServeChild(func(c call) (a answer) {
		var err error
		switch c.Do {
		case "take":
			held, err = takeSlot(c.URL)
		case "release":
			err = held.Release(background)
		case "spawn": // a sleeping process that inherits the slot
			a.PID, err = testkit.SpawnHeir(held.Files())
		default:
			err = errors.New("unknown call " + c.Do)
		}
		if err != nil {
			a.Err = err.Error()
		}
		return a
	})
}

func takeSlot(url string) (locks.Lease, error) {
	s, err := open.Store(url)
	if err != nil {
		return nil, err
	}
	ref, err := locks.NewRef(url)
	if err != nil {
		return nil, err
	}
	r := locks.Request{Ref: ref, Name: url, Claim: locks.Claim{Weight: 1, Max: 1}, NoWait: true}
	ticket, err := s.Join(background, r)
	if err != nil {
		return nil, err
	}
	return ticket.Wait(background)
}

func startChild(t testing.TB) *testkit.Child[call, answer] {
	t.Helper()
	return testkit.StartChild[call, answer](t, childVariable)
}

// startHolder starts a child that holds the slot.
func startHolder(t testing.TB, url string) *testkit.Child[call, answer] {
	t.Helper()
	c := startChild(t)
	c.Ask(call{Do: "take", URL: url})
	return c
}

func endProcess(t testing.TB, pid int) {
	t.Helper()
	testkit.Must(t, unix.Kill(pid, unix.SIGKILL))
}
