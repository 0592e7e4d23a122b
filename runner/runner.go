// Package runner holds a slot while a command runs: it waits for the slot, starts the command,
// passes signals on, gives the slot back on every way out, and says how it went.
//
// One goroutine, the caller's, owns all state of a run. It takes its events one by one from the
// relay: signals, among them SIGCHLD, and wake-ups by other goroutines. A process of its
// own, the watchdog, stands between golock and the command on a store with leases (watchdog.go).
package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"golock/internal/proctree"
	"golock/locks"
	"golock/signals"
)

// Run is one run of a command under a lock. A run does not change its fields, except the Refs of its
// requests: after leaving a queue it joins with a new ID.
type Run struct {
	Store     locks.KnownStore
	Address   string          // the store's URL as the user gave it, for the watchdog
	Request   locks.Request   // of the last name; the run sets NoWait from WaitLimit
	Earlier   []locks.Request // the requests of the run's other names, which it takes before, in this order
	Jitter    time.Duration   // before it asks the store, the run waits for a random time of at most Jitter
	WaitLimit time.Duration   // the longest time to wait for the slot, counted after Jitter; negative if there is no limit

	Unavailable Unavailable

	User string   // the name of this user; empty if it is not known or not needed
	Argv []string // the command; not empty
	Env  []string // its environment, without what a run adds

	// Watchdog is the path of the program of the watchdog. If it is empty or cannot be executed, this program is
	// the watchdog.
	Watchdog string

	Relay    *signals.Relay
	Terminal bool // there is a controlling terminal

	TimeLimit  time.Duration // the longest time that the command may take; 0 if there is no limit
	StopSignal syscall.Signal
	KillAfter  time.Duration // the time from the stop signal to KILL
	Rewrites   signals.Rewrites
	Tree       bool // the run waits for all descendants of the command, and stops them all
	Close      bool // the command does not inherit the lock's descriptors
	Exec       bool // golock becomes the command
	OnlyWarn   bool // golock does not stop the command when the slot is lost

	// DieWithGolock has the kernel kill the command if this process ends first. A command with a watchdog
	// is always killed then.
	DieWithGolock bool

	// Sockets is the directory where other golocks of this user look for the one that holds a slot
	// (package held). A run without it has no status socket.
	Sockets func() (dir string, err error)

	// Log logs a step of the run: a message, and pairs of a name and a value.
	Log func(warn bool, message string, pairs ...any)

	// OnProgress, if not nil, is called when the run has queued. It returns after what time it wants to be
	// called again; 0 stands for never. It gets nil when the waiting is over, before the command starts. It
	// may keep w until the next call.
	OnProgress func(w *WaitProgress) (again time.Duration)

	// NotesHolders has the outcome tell whom the run waited for (Outcome.WaitedFor), which may cost a look
	// at the store.
	NotesHolders bool

	// Say prints what a user wants to know even of a run that goes well.
	Say func(message string)

	onTransition func(from, to state) // tests see the transitions
}

// Unavailable is what a run does if its store cannot be reached at the start. With any other value than
// these, the run ends as Refused.
type Unavailable string

const (
	Skip      Unavailable = "skip" // the run ends as Busy
	RunAnyway Unavailable = "run"  // the command runs without a slot
)

// Kind says how a run ended, as a report does.
type Kind string

// A colon is followed by the fields of Outcome that describe a run of this kind.
const (
	Ended         Kind = "ended"          // the command ran and ended: Status
	TimedOut      Kind = "time-limit"     // the command was ended at its time limit: Status, Err
	NotFound      Kind = "not-found"      // there is no such command: Err
	NotExecutable Kind = "not-executable" // the command could not be executed: Err
	Busy          Kind = "busy"           // there was no slot in time, or nobody wants the slot any more: Err
	Interrupted   Kind = "interrupted"    // told to stop while waiting: Signal
	Refused       Kind = "refused"        // the store could not be used, or refused the request: Err
	Fault         Kind = "fault"          // a fault of golock's own: Err
	Lost          Kind = "lost"           // the slot was lost or evicted and the command stopped: Err
)

// Outcome is the result of a run. The command ran if the kind is Ended or TimedOut. If it is Fault or Lost,
// golock may have stopped the command, or the command was killed before golock knew that it had begun. With
// any other kind the command did not run.
type Outcome struct {
	Kind   Kind
	Status syscall.WaitStatus
	Signal syscall.Signal
	Err    error

	Began    time.Time
	Waited   time.Duration // the time until the run got the slot, or stopped waiting
	Ran      time.Duration // 0 if the command did not run
	Grant    locks.Grant   // zero if there was no slot
	Unlocked bool          // the command ran without a slot (Run.Unavailable)

	// Unreachable says that the store was out of reach, or refused for a temporary reason. The kind is
	// Busy or Refused (Run.Unavailable).
	Unreachable bool

	// WaitedFor is who held the slot when the run began to wait, or was turned away; empty if that is not
	// known. Without Run.NotesHolders it is known only of a run that was turned away.
	WaitedFor []locks.Entry
}

// Do does the run. It returns when the command has ended and the slot is free again, or when the run has
// failed. With Exec the command takes the place of this process, and Do returns only after a failure. A
// panic in a phase is a fault; the phases that clean up follow anyway.
func (r *Run) Do() Outcome {
	s := r.prepare()
	for _, phase := range []func() *Outcome{s.wait, s.start, s.supervise} {
		if s.out == nil {
			s.out = runPhase(phase)
		}
	}
	for _, phase := range []func() *Outcome{s.cleanUp, s.giveBack, s.completeOutcome} {
		out := runPhase(phase)
		if out != nil {
			s.out = out
		}
	}
	return *s.out
}

// runPhase calls a phase and returns its outcome. If the phase panics, the outcome is a fault.
func runPhase(phase func() *Outcome) (out *Outcome) {
	var fault error
	defer func() {
		if fault != nil {
			out = &Outcome{Kind: Fault, Err: fault}
		}
	}()
	defer locks.Recover(&fault)
	return phase()
}

// prepare does what needs neither store nor slot.
func (r *Run) prepare() *supervisor {
	s := &supervisor{
		Run: r, began: time.Now(), clock: locks.BootTime, preexisting: preexistingChildren(), unkillable: map[int]bool{},
	}
	s.cmd = prepareCommand(r.Argv, r.Env, r.Request, r.Store.URL())
	s.signal = s.send
	if r.NeedsWatchdog() {
		s.watchdog = &watchdog{run: s, program: r.Watchdog, socket: -1}
	}
	if !r.Store.IsLocalQueue { // a local queue answers by itself
		s.status = &statusServer{run: r}
	}
	return s
}

// NeedsWatchdog reports whether a watchdog ends the command when the lease does.
func (r *Run) NeedsWatchdog() bool { return r.Store.IsNetworked && !r.OnlyWarn }

// These constants select what warn logs.
const (
	ofPromises = false // what makes the store's promises weaker
	ofWaiting  = true  // what makes waiting slower
)

// warn logs the store's warnings of one kind: ofWaiting or ofPromises. It reports whether there were any.
func (r *Run) warn(waiting bool) bool {
	if !r.Store.IsNetworked {
		return false
	}
	warnings := r.Store.Can.Leases.Warnings(waiting)
	for _, warning := range warnings {
		r.Log(true, warning)
	}
	return len(warnings) > 0
}

// wait waits for the slot. The descriptors that the start needs are reserved meanwhile: if there
// are too few, the run fails before it takes a slot.
func (s *supervisor) wait() *Outcome {
	if err := s.checkCalls(); err != nil {
		return notStarted(err)
	}
	free, err := s.reserve()
	defer free()
	if err != nil {
		return notStarted(s.cmd.explain(err))
	}
	w := &waitPhase{Run: s.Run, began: s.began, watchdog: s.watchdog, status: s.status}
	lease, failed := w.wait()
	s.waited = time.Since(s.began)
	s.pendingSignals, s.waitedFor = w.pendingSignals, w.progress.waitedFor
	if failed != nil {
		failed.Unreachable = failed.Kind == Refused && errors.As(failed.Err, new(*locks.OutageError))
	}
	unavailable := failed != nil && failed.Unreachable && !w.attempt.hasTurn.Load()
	switch {
	case unavailable && s.Unavailable == Skip:
		return &Outcome{Kind: Busy, Err: failed.Err, Unreachable: true}
	case unavailable && s.Unavailable == RunAnyway: // without a slot, and so without watchdog and status socket
		s.Log(true, "the command runs without a slot", "error", failed.Err)
		s.watchdog.dismiss()
		s.status.close()
		s.lease, s.watchdog, s.status = noLease{}, nil, nil
		return nil
	case failed != nil:
		return failed
	}
	s.lease, s.later = lease, w.attempt.later
	grants := grantsOf(lease)
	for i := w.heldCount; i < len(grants); i++ {
		w.logGrant(w.attempt.names()[i], grants[i])
	}
	return nil
}

// checkCalls fails if the kernel refuses a system call without which golock would not notice the end of
// the command, or could not end all of it: the slot must not be taken then.
func (s *supervisor) checkCalls() error {
	if s.Exec {
		return nil
	}
	_, err := syscall.Wait4(-1, nil, unix.WNOHANG, nil) // the run has no child yet that it could reap
	if err != nil && err != unix.ECHILD {
		return os.NewSyscallError("wait4", err)
	}
	if s.watchdog == nil && !s.Tree {
		return nil
	}
	err = proctree.CheckSubreaper()
	if err != nil {
		return err
	}
	if s.watchdog == nil {
		return nil
	}
	_, _, err = proctree.PeekEnded()
	if err == unix.ECHILD {
		return nil
	}
	return os.NewSyscallError("waitid", err)
}

// noLease is the lease of a run without a slot.
type noLease struct{ locks.Lasting }

func (noLease) Grant() locks.Grant            { return locks.Grant{} }
func (noLease) Files() []int                  { return nil }
func (noLease) Evicted() error                { return nil }
func (noLease) Release(context.Context) error { return nil }

// reserve takes the descriptors that the start needs: a pipe (syscall.ForkExec), and with a lease
// what the watchdog needs. It also fails if too few are left for the waiting: the Go runtime ends a
// process whose poller gets no descriptors.
func (s *supervisor) reserve() (free func(), err error) {
	forStart, forWaiting := 2, 6
	if s.watchdog != nil {
		forStart, forWaiting = 6, 8
	}
	taken, err := reserveDescriptors(forStart)
	free = func() { closeAll(taken) }
	if err != nil {
		return free, err
	}
	waiting, err := reserveDescriptors(forWaiting)
	closeAll(waiting)
	return free, err
}

// reserveDescriptors takes count descriptors. After an error it has taken fewer.
func reserveDescriptors(count int) (taken []int, err error) {
	for len(taken) < count && err == nil {
		var pair [2]int
		err = unix.Pipe2(pair[:], unix.O_CLOEXEC)
		if err == nil {
			taken = append(taken, pair[:]...)
		}
	}
	return taken, err
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// cleanUp prepares the release. After a fault it ends the command and waits for its processes. It
// stops the renewals, and the status socket answers "lost" from now on.
func (s *supervisor) cleanUp() *Outcome {
	if s.state >= running && s.state < ended {
		s.recordReason(grave, Fault, s.out.Err)
		s.stop(s.KillAfter)
		s.collect()
		for s.pid != 0 || len(s.remaining()) > 0 {
			s.onTime()
			time.Sleep(rescanPause)
			s.collect()
		}
		s.enter(ended)
	}
	s.renewer.Stop()
	if s.watchdog != nil {
		s.Relay.Unwatch(s.watchdog.socket)
	}
	if !s.spawned.IsZero() {
		s.ran = max(time.Since(s.spawned), 1)
	}
	s.status.markLost()
	return nil
}

// giveBack releases the slot, then closes the status socket and ends the watchdog.
func (s *supervisor) giveBack() *Outcome {
	tell := func() {}
	if s.lease != nil && s.lease != (noLease{}) {
		mayHaveBegun := s.out.Kind == Fault || s.out.Kind == Lost
		unused := s.spawned.IsZero() && !mayHaveBegun
		if s.out.Kind == Interrupted && s.watchdog.exists() { // the command has not begun, so the slot is unused
			tell = s.releaseWithin(leaveLimit, s.lease, s.watchdog)
		} else {
			sinceGrant := time.Since(s.began) - s.waited
			tell = s.release(s.lease, unused, sinceGrant)
		}
	}
	if s.ran > 0 && s.out.Kind != Fault { // after a fault the status is not known
		s.out.Status = s.exit
		s.Log(false, "command ended", "status", statusText(s.exit))
	}
	tell()
	s.status.close()
	s.watchdog.dismiss()
	reapOrphans()
	return nil
}

// completeOutcome adds to the outcome the times, the grant, and whom the run waited for.
func (s *supervisor) completeOutcome() *Outcome {
	s.out.Began, s.out.Waited, s.out.Ran, s.out.WaitedFor = s.began, s.waited, s.ran, s.waitedFor
	if busy, ok := errors.AsType[*locks.BusyError](s.out.Err); ok && len(s.waitedFor) == 0 {
		s.out.WaitedFor = busy.Holders
	}
	if s.lease != nil {
		s.out.Grant, s.out.Unlocked = s.lease.Grant(), s.lease == noLease{}
	}
	if s.out.Kind == Lost {
		s.out.Err = fmt.Errorf("%s: %w; the command was stopped", s.lockText(), s.out.Err)
	}
	return nil
}

// HasTerminal reports whether this process has a controlling terminal, whatever its standard input
// is.
func HasTerminal() bool {
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	unix.Close(fd)
	return true
}
