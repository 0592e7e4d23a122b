package hostile_test

import (
	"io"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const sigTERM = syscall.SIGTERM

// soon is await that fails nothing, and does not take as long.
func soon(cond func() bool) bool {
	for end := time.Now().Add(limit / 3); !cond(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// screen is what a terminal has shown since it was last asked.
type screen struct {
	mu  sync.Mutex
	all string
}

func watch(terminal io.Reader) *screen {
	s := &screen{}
	go func() {
		b := make([]byte, 4096)
		for {
			n, err := terminal.Read(b)
			if err != nil {
				return
			}
			s.mu.Lock()
			s.all += string(b[:n])
			s.mu.Unlock()
		}
	}()
	return s
}

func (s *screen) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all
}

// await waits for a text and forgets all that was shown up to it.
func (s *screen) await(t testing.TB, text string) {
	t.Helper()
	await(t, "the terminal shows "+text, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		_, rest, found := strings.Cut(s.all, text)
		if found {
			s.all = rest
		}
		return found
	})
}
