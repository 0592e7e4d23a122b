//go:build integration

package crash_test

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golock/test/testkit"
)

type proc struct {
	*testkit.Process
	flags  []string
	world  *world
	token  int
	goOn   chan struct{} // see threadAlone
	judged bool          // killed, or its end is looked at by the test itself

	// From the judge's records, guarded by world.mu.
	begins, ends int
	command      int // its process number
	fence        int64
	turn         int64 // the number of its begin in the world
}

// world is a sandbox, and the golocks of the lock "job" in it. Their judges
// write records into one pipe, whose end says that none of them is left.
type world struct {
	*testkit.Sandbox
	always []string // flags of every golock
	out    *os.File
	over   chan struct{} // closed at the end of the pipe

	mu         sync.Mutex
	procs      []*proc
	turns      int64
	violations []string
}

// newWorld makes one with a store; "" is a local one of its own.
func newWorld(t *testing.T, store string) *world {
	t.Helper()
	r, out, err := os.Pipe()
	testkit.Must(t, err)
	w := &world{Sandbox: testkit.New(t, store), out: out, over: make(chan struct{})}
	t.Cleanup(func() { out.Close() })
	go func() {
		defer close(w.over)
		defer r.Close()
		for lines := bufio.NewScanner(r); lines.Scan(); {
			w.record(strings.Fields(lines.Text()))
		}
	}()
	return w
}

func (w *world) record(field []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	token, _ := strconv.Atoi(field[1])
	switch p := w.procs[token]; field[0] {
	case "v":
		w.violations = append(w.violations, strings.Join(field[1:], " "))
	case "b":
		w.turns++
		p.begins, p.turn = p.begins+1, w.turns
		p.command, _ = strconv.Atoi(field[2])
		p.fence, _ = strconv.ParseInt(field[3], 10, 64)
	case "e":
		p.ends++
	}
}

// prepare makes a golock whose command lasts so long; negative: until its stdin ends.
func (w *world) prepare(hold time.Duration, flags ...string) (*proc, *testkit.Command) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := &proc{flags: flags, world: w, token: len(w.procs), goOn: make(chan struct{})}
	w.procs = append(w.procs, p)
	command := []string{"--", judge, strconv.Itoa(p.token), strconv.FormatInt(hold.Microseconds(), 10)}
	c := w.Job(slices.Concat(w.always, flags, command)...)
	c.Stdout = w.out
	return p, c
}

func (w *world) start(flags ...string) *proc { return w.lasting(0, flags...) }

func (w *world) lasting(hold time.Duration, flags ...string) *proc {
	w.T.Helper()
	p, c := w.prepare(hold, flags...)
	p.Process = c.Start()
	return p
}

// refused runs one that must end with a code and start nothing.
func (w *world) refused(code int, flags ...string) {
	w.T.Helper()
	p := w.start(flags...)
	p.judged = true
	if p.Expects(code); w.begun(p) {
		w.T.Errorf("code %d, and the command has run", code)
	}
}

func (p *proc) release() { p.In.Close() }

// holding starts one that holds until it is released.
func (w *world) holding(flags ...string) *proc {
	w.T.Helper()
	p := w.lasting(-time.Microsecond, flags...)
	w.awaitBegin(p)
	return p
}

// queued starts a golock and returns when it waits.
func (w *world) queued(flags ...string) *proc {
	w.T.Helper()
	p := w.start(append(slices.Clip(flags), "-v")...)
	p.Says(" waiting")
	return p
}

func (w *world) begun(p *proc) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return p.begins > 0
}

func (w *world) awaitBegin(p *proc) {
	w.T.Helper()
	if !testkit.Within(testkit.Patience, func() bool { return w.begun(p) }) {
		w.T.Fatalf("the command of golock %d does not begin: %s", p.token, w.report())
	}
}

func (p *proc) commandPID() int {
	p.world.mu.Lock()
	defer p.world.mu.Unlock()
	return p.command
}

// awaitDeath waits for the death of the command, whatever its golock still has to do.
func (p *proc) awaitDeath() {
	p.world.T.Helper()
	pid := p.commandPID()
	// Not Lives: a process loses its environment before it unlocks its files.
	p.world.Eventually("the command is dead", func() bool { return !testkit.Alive(pid) })
}

// awaitEnd waits until the command has ended by itself.
func (w *world) awaitEnd(p *proc) {
	w.T.Helper()
	w.Eventually("the command has ended", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return p.ends > 0
	})
}

// finish waits for the end of all, and looks at how they ended: no judge has
// complained, those that nobody killed have run, and nothing remains.
func (w *world) finish() {
	w.T.Helper()
	for _, p := range w.procs {
		p.Wait()
	}
	w.out.Close()
	select {
	case <-w.over:
	case <-time.After(testkit.Patience):
		w.T.Fatalf("commands are left: %s", w.All())
	}
	for _, v := range w.violations {
		w.T.Errorf("violation: golock %s", v)
	}
	for _, p := range w.procs {
		if len(w.violations) > 0 {
			w.T.Logf("golock %d: %v", p.token, p.Wait())
		}
		w.checkEnd(p)
	}
	w.Eventually("nothing is listed", func() bool { return len(w.List("job")) == 0 })
	if w.IsLocal() {
		w.IsFree()
	} else { // after a quarantine
		w.Job("--", "true").Run().Expect(w.T, 0)
	}
}

func (w *world) checkEnd(p *proc) {
	w.T.Helper()
	r := p.Wait()
	has := func(flag string) bool { return slices.Contains(p.flags, flag) }
	switch {
	case p.begins > 1:
		w.T.Errorf("golock %d ran its command %d times", p.token, p.begins)
	case p.judged:
	case r.Code == 75 && has("-n") && p.begins == 0:
	case r.Code != 0 || p.begins != 1 || p.ends != 1:
		w.T.Errorf("golock %d %v: %v, command started %d times and ended %d times",
			p.token, p.flags, r, p.begins, p.ends)
	case w.IsLocal() && !has("-v"):
		r.Quiet(w.T)
	}
}

// finishInOrder is finish for those that must have been served in this order.
func (w *world) finishInOrder(queue ...*proc) {
	w.T.Helper()
	w.finish()
	for i, p := range queue[1:] {
		if before := queue[i]; p.fence <= before.fence || p.turn <= before.turn {
			w.T.Errorf("inversion: golock %d has fence %d and turn %d, golock %d before it %d and %d",
				p.token, p.fence, p.turn, before.token, before.fence, before.turn)
		}
	}
}

// heard reports whether a golock has printed a line with both texts.
func (w *world) heard(one, other string) bool {
	for _, p := range w.procs {
		for line := range strings.Lines(p.Stderr()) {
			if strings.Contains(line, one) && strings.Contains(line, other) {
				return true
			}
		}
	}
	return false
}

func (w *world) report() string {
	var text strings.Builder
	for _, p := range w.procs {
		fmt.Fprintf(&text, "\ngolock %d, running: %v, says: %s", p.token, p.Running(), p.Stderr())
	}
	return text.String()
}
