// Package check tests whether a lock keeps runs apart. It starts many processes (children), several at a
// time. Each child runs once under the lock and adds one to a counter that only the lock protects.
// While it holds the lock, the child is "inside". Each child writes a note. In the end judge.go reads the
// notes: how many children were inside at the same time, whether an addition was lost, whether a run
// overtook another one, and how long a hand-off took.
//
// The lock under test is a command line that runs another one (Test.Command). The package knows no
// store and prints nothing.
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

// Test is a test of a lock. The caller sets the exported fields.
type Test struct {
	// Command gives the arguments of one run of the tool, the lock under test, around a child.
	Command func(child []string) []string
	Env     []string
	Golock  bool // the tool is golock: it logs in JSON that it waits, and exits with 0 if all is well

	Program  string // the path of this program, for the children
	Dir      string // an empty directory for the notes of the children
	Loops    int    // the number of children
	Children int    // the number of children at a time
	Limit    int    // the number of children that may be inside at the same time
	Kill     int    // the percentage of runs of the tool that are killed

	Patience time.Duration         // the test ends when no run has ended for this time
	Progress func(done, total int) // gets the number of runs that have ended, and the number of all runs

	cancel     context.CancelCauseFunc
	runs       []*run
	total      int           // the number of runs that the test will start
	done       int           // the number of runs that have ended
	failStreak int           // the number of runs that have failed since the last success
	average    time.Duration // the moving average of the duration of a run
	idle       *time.Timer   // ends the test after Patience; restarted whenever a run ends
}

// StartError says that no child ever got inside because the tool itself does not work.
type StartError struct {
	Code    int    // the exit code of the tool
	Message string // the last line that the tool printed; "" if it printed none
}

func (e *StartError) Error() string {
	if e.Message == "" {
		return fmt.Sprintf("the tool ended with exit code %d and printed nothing", e.Code)
	}
	return e.Message
}

// Do runs the test. It may be called once. If ctx ends first, Do stops the runs and returns the cause. A
// *StartError means that there is nothing to report. When Do returns, all runs have ended.
func (t *Test) Do(ctx context.Context) (*Report, error) {
	began := time.Now()
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	t.cancel = cancel
	t.idle = time.AfterFunc(t.Patience, func() {
		cancel(fmt.Errorf("nothing happened for %v: nobody got in, and nobody ended", t.Patience))
	})
	defer t.idle.Stop()
	t.round(inner, t.Loops, t.Kill)
	notes, err := readNotes(t.Dir)
	// More children make the additions that killed runs did not make: after a kill, the lock must work
	// as before.
	missing := t.missing(notes)
	if err == nil && missing > 0 && inner.Err() == nil {
		const killNone = 0
		t.round(inner, missing, killNone)
		notes, err = readNotes(t.Dir)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, err
	}
	failed := t.failures(notes)
	if len(notes) == 0 && len(failed) > 0 && failed[0].code != 0 {
		return nil, &StartError{Code: failed[0].code, Message: failed[0].message}
	}
	report := t.judge(notes, context.Cause(inner))
	report.Seconds = time.Since(began).Seconds()
	return report, nil
}

// round does n runs, at most t.Children at a time. It kills each run with a probability of killPercent.
func (t *Test) round(ctx context.Context, n, killPercent int) {
	t.total += n
	ended := make(chan *run)
	running := 0
	for {
		for n > 0 && running < t.Children && ctx.Err() == nil {
			r := t.newRun(rand.IntN(100) < killPercent)
			go func() {
				r.do(ctx)
				ended <- r
			}()
			running++
			n--
		}
		if running == 0 {
			return
		}
		r := <-ended
		running--
		t.count(r)
	}
}

// newRun makes the next run, and decides when it is killed.
func (t *Test) newRun(toBeKilled bool) *run {
	number := len(t.runs)
	r := &run{test: t, number: number, child: t.child(number, toBeKilled)}
	// Half of the kills come when the child is inside: if many children wait, a random time finds few of
	// them inside.
	r.kill = killTime{never: !toBeKilled, inside: toBeKilled && rand.IntN(2) == 0, after: rand.N(t.average + stayIfKilled)}
	t.runs = append(t.runs, r)
	return r
}

// count counts a run that has ended. It gives up if run after run fails.
func (t *Test) count(r *run) {
	t.done++
	t.idle.Reset(t.Patience)
	t.Progress(t.done, t.total)
	if r.killed || r.stopped {
		return
	}
	t.average += (time.Duration(r.ended-r.started) - t.average) / 8
	if r.code == 0 {
		t.failStreak = 0
		return
	}
	t.failStreak++
	_, err := os.Stat(t.Dir + "/" + insideFile)
	anyChildWasInside := err == nil
	// A tool that ends in failure although its child did its work may have a reason; golock has none.
	if t.failStreak >= t.Children && (t.Golock || !anyChildWasInside) {
		t.cancel(errors.New("stopped, because one run after the other failed"))
	}
}

// now reads CLOCK_BOOTTIME in nanoseconds. All processes of a machine share that clock, and nobody
// can set it.
func now() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts)
	return ts.Nano()
}
