//go:build integration

package shell_test

import (
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Scripts are killed at random moments, with their golocks or alone: never have two the same slot
// number, none loses its slot, and at the end nothing is left.
func TestScriptsAreKilled(t *testing.T) {
	everywhere(t, func(s *sandbox) {
		var all sync.WaitGroup
		for seed := range uint64(4) {
			all.Go(func() {
				random := rand.New(rand.NewPCG(seed, 0))
				for range 5 {
					p := s.script("judged.sh")
					p.Shows("in\n")
					time.Sleep(time.Duration(random.IntN(60)) * time.Millisecond)
					if random.IntN(2) == 0 {
						p.Signal(syscall.SIGKILL) // the shell alone
					}
					killGroup(p)
				}
			})
		}
		all.Wait()
		s.free("judged")
		if b, _ := os.ReadFile(s.Path("violations")); len(b) > 0 {
			s.T.Errorf("%s", b)
		}
		if lines := strings.Count(s.All(), "judged.sh"); lines > 0 {
			s.T.Errorf("still running: %s", s.All())
		}
	})
}
