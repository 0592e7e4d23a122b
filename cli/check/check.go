// Package check is the strength test of a lock: many processes, some at a time, each
// of which goes inside once, by way of the lock under test, and adds one to a counter
// that nothing else protects. Their notes are judged afterwards (judge.go): how many
// were inside at the same time, whether an addition was lost, whether anybody was
// overtaken, and how long the lock took from one to the next.
//
// The lock is a command line that is put in front of a child's own (Tool). The
// package knows no store and prints nothing.
package check

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Tool is the lock under test.
type Tool struct {
	// Command gives the arguments of one run of the tool around a child.
	Command func(child []string) []string
	Env     []string

	Golock  bool // it is golock: it logs in JSON when it waits, and ends with 0 if all is well
	Ordered bool // first come, first served is promised
}

// Test is one strength test.
type Test struct {
	Tool     Tool
	Program  string // the path of this program, for the children
	Dir      string // an empty directory for their notes
	Loops    int    // how many children
	Children int    // how many at a time
	Limit    int    // how many may be inside at the same time
	Kill     int    // how many of a hundred runs of the tool are killed

	Patience time.Duration      // a test in which nothing happens for so long ends
	Progress func(done, of int) // is called with the number of runs that have ended
}

// StartError says that no child ever got inside: the tool itself does not work.
type StartError struct {
	Code    int    // its exit code
	Message string // the last that it printed; "": nothing
}

func (e *StartError) Error() string {
	if e.Message == "" {
		return fmt.Sprintf("the tool ended with exit code %d and printed nothing", e.Code)
	}
	return e.Message
}

// work is a test while it runs.
type work struct {
	*Test
	cancel context.CancelCauseFunc

	mu      sync.Mutex
	runs    []*run
	total   int           // how many runs there will be
	done    int           // how many have ended
	failed  int           // how many of the last ones failed, without a break
	average time.Duration // how long a run takes
	idle    *time.Timer   // since the last one has ended
}

// Do runs the test. If ctx ends first the runs are stopped and its error is
// returned; a *StartError means that there is nothing to report. When Do returns
// nothing is running any more.
func (t *Test) Do(ctx context.Context) (*Report, error) {
	began := time.Now()
	if err := os.WriteFile(t.Dir+"/"+recordFile, nil, 0o600); err != nil {
		return nil, err
	}
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	w := &work{Test: t, cancel: cancel, idle: time.AfterFunc(t.Patience, func() {
		cancel(fmt.Errorf("nothing happened for %v: nobody got in, and nobody ended", t.Patience))
	})}
	defer w.idle.Stop()
	w.round(inner, t.Loops, t.Kill)
	notes, err := readNotes(t.Dir)
	// Others do what the killed ones have not done: whoever was killed, the lock must
	// be as good as before.
	if missing := t.missing(w.runs, notes); err == nil && missing > 0 && inner.Err() == nil {
		w.round(inner, missing, 0)
		notes, err = readNotes(t.Dir)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	why := context.Cause(inner) // it ended early
	if start := (*StartError)(nil); errors.As(why, &start) {
		return nil, start
	}
	if err != nil {
		return nil, err
	}
	report := t.judge(w.runs, notes, why)
	report.Seconds = time.Since(began).Seconds()
	return report, nil
}

func (w *work) round(ctx context.Context, n, kill int) {
	w.total += n
	var workers sync.WaitGroup
	for range min(w.Children, n) {
		workers.Go(func() {
			for r := w.take(ctx, kill); r != nil; r = w.take(ctx, kill) {
				r.do(ctx)
				w.ended(r)
			}
		})
	}
	workers.Wait()
}

// take gives the next run, nil if there is none. Of a hundred, kill will be killed: every
// tenth number while its child is inside, the others at any moment of their lives.
func (w *work) take(ctx context.Context, kill int) *run {
	w.mu.Lock()
	defer w.mu.Unlock()
	number := len(w.runs)
	if number == w.total || ctx.Err() != nil {
		return nil
	}
	toBeKilled := rand.IntN(100) < kill
	r := &run{tool: &w.Tool, number: number, child: w.child(number, toBeKilled)}
	if toBeKilled {
		r.killAfter = rand.N(w.average+longestIfKilled) + 1
		r.killInside = number%killedMeetEvery == 0
	}
	w.runs = append(w.runs, r)
	return r
}

func (w *work) ended(r *run) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done++
	w.idle.Reset(w.Patience)
	w.Progress(w.done, w.total)
	if r.killed || r.stopped {
		return
	}
	w.average += (time.Duration(r.ended-r.started) - w.average) / 8
	if r.code == 0 {
		w.failed = 0
		return
	}
	w.failed++
	notes, err := os.Stat(w.Dir + "/" + recordFile)
	switch inside := err == nil && notes.Size() > 0; {
	case !inside && w.failed >= min(w.Children, w.total):
		w.cancel(&StartError{Code: r.code, Message: r.message()})
	case inside && w.Tool.Golock && w.failed >= 2*w.Children:
		w.cancel(errors.New("given up, as one run after the other failed"))
	}
}

// now is the clock that all processes of a machine share and nobody sets, in
// nanoseconds.
func now() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts)
	return ts.Nano()
}
