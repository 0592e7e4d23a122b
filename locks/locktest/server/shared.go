package server

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// Shared is an environment variable that tells where a server is which all tests of a run share.
type Shared string

// Setting is the variable with its value.
func (v Shared) Setting(p *Process) string { return fmt.Sprintf("%s=%d:%s", v, p.Port, p.Dir) }

var (
	sharing sync.Mutex
	shared  = map[Shared]any{} // the servers that this process knows

	ending sync.Mutex
	ends   []func()
)

// Get returns the server of a variable. It attaches the server that the run of all tests has started. If there
// is none, it starts one for this process.
func Get[S any](v Shared, attach func(*Process) (S, error), start func() (s S, end func(), err error)) (s S, err error) {
	sharing.Lock()
	defer sharing.Unlock()
	if s, ok := shared[v].(S); ok {
		return s, nil
	}
	end := func() {}
	if port, dir, given := strings.Cut(os.Getenv(string(v)), ":"); given {
		p := &Process{Host: Loopback, Dir: dir}
		if p.Port, err = strconv.Atoi(port); err == nil {
			s, err = attach(p)
		}
	} else {
		s, end, err = start()
	}
	if err == nil {
		shared[v] = s
		AtEnd(end)
	}
	return s, err
}

// prefixes counts the prefixes of this process.
var prefixes atomic.Int64

// NewPrefix returns a prefix that no other store on a shared server has.
func NewPrefix() string { return fmt.Sprintf("t%d.%d", os.Getpid(), prefixes.Add(1)) }

// AtEnd has Close call a function.
func AtEnd(f func()) {
	ending.Lock()
	defer ending.Unlock()
	ends = append(ends, f)
}

// Close ends what this process has started for all its tests, the last first.
func Close() {
	sharing.Lock()
	defer sharing.Unlock()
	clear(shared)
	ending.Lock()
	defer ending.Unlock()
	for _, end := range slices.Backward(ends) {
		end()
	}
	ends = nil
}
