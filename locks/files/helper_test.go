package files_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks"
	"golock/locks/files"
	"golock/locks/locktest"
	"golock/test/testkit"
)

var background = context.Background()

// keptTTL is for leases that are renewed, on a machine that may be busy.
const keptTTL = 6 * time.Second

// onOne runs a test in a fresh directory with one of the three primitives, which the
// test's name decides.
func onOne(t *testing.T, test func(t *testing.T, url string)) {
	t.Parallel()
	test(t, scheme(t)+"://"+memory(t))
}

// virtually runs a test in virtual time, which the stores of openAt have too.
func virtually(t *testing.T, test func(t *testing.T, url string)) {
	onOne(t, func(t *testing.T, url string) {
		synctest.Test(t, func(t *testing.T) {
			// A cancelled waiter may still pause and leave; the clock stops with the test.
			t.Cleanup(func() { time.Sleep(time.Minute) })
			test(t, url)
		})
	})
}

// schemes are the primitives that a store can be made of.
var schemes = []string{"mkdir", "symlink", "excl"}

func scheme(t testing.TB) string { return schemes[len(t.Name())%len(schemes)] }

// openAt opens a store whose machine's clock is ahead of the virtual time.
func openAt(t testing.TB, url, machine string, ahead time.Duration) *files.Store {
	t.Helper()
	s := open(url)
	s.SetClock(machine, func() locks.Instant { return locks.Instant(time.Now().UnixNano()).Add(ahead) })
	return s
}

// memory is a fresh directory in memory if there is room for one: on a busy disk a rename
// may take seconds.
func memory(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "golock-files-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func open(url string) *files.Store {
	scheme, dir, _ := strings.Cut(url, "://")
	return files.New(scheme, dir)
}

// before calls f once, before the store's next step of that name.
func before(s *files.Store, at string, f func()) {
	var once sync.Once
	s.At(func(step string) {
		if step == at {
			once.Do(f)
		}
	})
}

// keep renews a lease until the test ends or stop is called.
func keep(t testing.TB, l locks.Lease) (stop func()) {
	stop = locktest.KeepRenewed(l, func(err error) { t.Errorf("Renew: %v", err) })
	t.Cleanup(stop)
	return stop
}

// orderVariable holds the order of a process that is to be killed.
const orderVariable = "LOCKTEST_LEASEFILE_ORDER"

// order is to take the slot and give it back, or to sweep.
type order struct {
	URL  string
	Step int // the step before which the process kills itself
	TTL  time.Duration

	Sweep time.Duration // as a user without rights: what is older than that; 0: no sweep
}

func process(t testing.TB, o order) *exec.Cmd {
	t.Helper()
	text, err := json.Marshal(o)
	testkit.Must(t, err)
	cmd := exec.Command(os.Args[0])
	// One with the race detector would sleep a second at its end.
	cmd.Env = append(os.Environ(), orderVariable+"="+string(text), "GORACE=atexit_sleep_ms=0")
	return cmd
}

// obey is what such a process does.
func obey(text string) error {
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	s, n := open(o.URL), 0
	if o.Sweep > 0 {
		if err := syscall.Setuid(max(os.Geteuid(), 1)); err != nil {
			return err
		}
		_, err := s.Sweep(background, "", o.Sweep)
		return err
	}
	s.At(func(string) {
		if n++; n == o.Step {
			_ = unix.Kill(os.Getpid(), unix.SIGKILL)
			select {}
		}
	})
	ref, err := locks.NewRef("n")
	if err != nil {
		return err
	}
	admission, err := s.Join(background, locks.Request{Ref: ref, Name: "n", Claim: locks.Claim{Weight: 1, Max: 1}, TTL: o.TTL})
	if err != nil {
		return err
	}
	l, err := admission.Wait(background)
	if err != nil {
		return err
	}
	if err := locktest.ReleaseUntilAnswered(l); !errors.Is(err, locks.ErrLost) {
		return err
	}
	return nil
}

// directory is where the store of a URL is.
func directory(t testing.TB, url string) string {
	t.Helper()
	_, dir, ok := strings.Cut(url, "://")
	if !ok {
		t.Fatal(url)
	}
	return dir
}
