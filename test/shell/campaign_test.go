package shell_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Scripts are killed at any moment, with golocks of theirs or without: never two
// have one slot number, nobody loses a slot, and at the end nothing is left.
func TestScriptsAreKilled(t *testing.T) {
	everywhere(t, func(w *world) {
		var all sync.WaitGroup
		until := time.Now().Add(campaign())
		for range 4 {
			all.Go(func() {
				for time.Now().Before(until) {
					p := w.script("judged.sh")
					time.Sleep(time.Duration(50+rand.IntN(400)) * time.Millisecond)
					if rand.IntN(2) == 0 {
						_ = p.Process.Signal(syscall.SIGKILL) // the shell alone
					}
					_ = unix.Kill(-p.Process.Pid, unix.SIGKILL) // and what it has started in its group
					<-p.ended
				}
			})
		}
		all.Wait()
		w.free("judged")
		if b, _ := os.ReadFile(filepath.Join(w.dir, "violations")); len(b) > 0 {
			w.Errorf("%s", b)
		}
		visits, _ := os.ReadFile(filepath.Join(w.dir, "visits"))
		n := strings.Count(string(visits), "in\n")
		w.Logf("%d visits", n)
		if n < 10 {
			w.Error("too few to mean anything")
		}
	})
}

// campaign is how long a test with chance in it lasts: seconds, or what
// GOLOCK_CAMPAIGN says.
func campaign() time.Duration {
	if d, err := time.ParseDuration(os.Getenv("GOLOCK_CAMPAIGN")); err == nil {
		return d
	}
	return 4 * time.Second
}
