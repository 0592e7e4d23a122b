// Package check is the strength test of a lock: many processes, some at a time, each
// of which goes inside once, by way of the lock under test, and adds one to a counter
// that nothing else protects. Their notes are judged afterwards (judge.go): how many
// were inside at the same time, whether an addition was lost, whether anybody was
// overtaken, and how long the lock took from one to the next.
//
// The lock is a command line that is put in front of a child's own (Command). The
// package knows no store and prints nothing.
package check

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Test is one strength test.
type Test struct {
	// Command gives the arguments of one run of the tool, the lock under test, around a child.
	Command func(child []string) []string
	Env     []string
	Golock  bool // the tool is golock: it logs in JSON when it waits, and ends with 0 if all is well

	Program  string // the path of this program, for the children
	Dir      string // an empty directory for their notes
	Loops    int    // how many children
	Children int    // how many at a time
	Limit    int    // how many may be inside at the same time
	Kill     int    // how many of a hundred runs of the tool are killed

	Patience time.Duration      // a test in which nothing happens for so long ends
	Progress func(done, of int) // is called with the number of runs that have ended

	cancel  context.CancelCauseFunc
	runs    []*run
	total   int           // how many runs there will be
	done    int           // how many have ended
	failed  int           // how many of the last ones failed, one after the other
	average time.Duration // how long a run takes
	idle    *time.Timer   // since the last one has ended
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

// Do runs the test, once. If ctx ends first the runs are stopped and its error is
// returned; a *StartError means that there is nothing to report. When Do returns
// nothing is running any more.
func (t *Test) Do(ctx context.Context) (*Report, error) {
	began := time.Now()
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	t.cancel, t.idle = cancel, time.AfterFunc(t.Patience, func() {
		cancel(fmt.Errorf("nothing happened for %v: nobody got in, and nobody ended", t.Patience))
	})
	defer t.idle.Stop()
	t.round(inner, t.Loops, t.Kill)
	notes, err := readNotes(t.Dir)
	// Others do what the killed ones have not done: whoever was killed, the lock must
	// be as good as before.
	if missing := t.missing(notes); err == nil && missing > 0 && inner.Err() == nil {
		t.round(inner, missing, 0)
		notes, err = readNotes(t.Dir)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, err
	}
	if failed := t.failures(notes); len(notes) == 0 && len(failed) > 0 && failed[0].code != 0 {
		return nil, &StartError{Code: failed[0].code, Message: failed[0].message}
	}
	report := t.judge(notes, context.Cause(inner))
	report.Seconds = time.Since(began).Seconds()
	return report, nil
}

// round does n runs; of a hundred, kill will be killed.
func (t *Test) round(ctx context.Context, n, kill int) {
	t.total += n
	ended := make(chan *run)
	for running := 0; ; running-- {
		for ; n > 0 && running < t.Children && ctx.Err() == nil; n-- {
			r := t.newRun(rand.IntN(100) < kill)
			go func() {
				r.do(ctx)
				ended <- r
			}()
			running++
		}
		if running == 0 {
			return
		}
		t.ended(<-ended)
	}
}

func (t *Test) newRun(toBeKilled bool) *run {
	number := len(t.runs)
	r := &run{test: t, number: number, child: t.child(number, toBeKilled)}
	// Where many wait, few of the random moments find a child inside.
	r.kill = moment{never: !toBeKilled, inside: toBeKilled && rand.IntN(2) == 0, after: rand.N(t.average + stayIfKilled)}
	t.runs = append(t.runs, r)
	return r
}

func (t *Test) ended(r *run) {
	t.done++
	t.idle.Reset(t.Patience)
	t.Progress(t.done, t.total)
	if r.killed || r.stopped {
		return
	}
	t.average += (time.Duration(r.ended-r.started) - t.average) / 8
	if r.code == 0 {
		t.failed = 0
		return
	}
	t.failed++
	_, nobodyInside := os.Stat(t.Dir + "/" + insideFile)
	if t.failed >= t.Children && (t.Golock || nobodyInside != nil) {
		t.cancel(errors.New("given up, as one run after the other failed"))
	}
}

// now is the clock that all processes of a machine share and nobody sets, in
// nanoseconds.
func now() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts)
	return ts.Nano()
}
