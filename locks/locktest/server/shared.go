package server

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Shared is an environment variable that tells where a server is which all tests of a run share.
type Shared string

// Setting is the variable with its value.
func (v Shared) Setting(p *Process) string { return fmt.Sprintf("%s=%d:%s", v, p.Port, p.Dir) }

// find gives the process that the run has started; nil: none.
func (v Shared) find() (*Process, error) {
	text := os.Getenv(string(v))
	if text == "" {
		return nil, nil
	}
	port, dir, _ := strings.Cut(text, ":")
	number, err := strconv.Atoi(port)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", v, err)
	}
	return &Process{Host: Loopback, Port: number, Dir: dir}, nil
}

var (
	sharing sync.Mutex
	shared  = map[Shared]any{} // the servers that this process knows

	ending sync.Mutex
	ends   []func()
)

// Get gives the server of a variable: that of the run of all tests, which is attached, or one that
// is started for this process.
func Get[S any](v Shared, attach func(*Process) (S, error), start func() (s S, end func(), err error)) (s S, err error) {
	sharing.Lock()
	defer sharing.Unlock()
	if s, ok := shared[v].(S); ok {
		return s, nil
	}
	p, err := v.find()
	if err != nil {
		return s, err
	}
	end := func() {}
	if p != nil {
		s, err = attach(p)
	} else {
		s, end, err = start()
	}
	if err == nil {
		shared[v] = s
		AtEnd(end)
	}
	return s, err
}

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
