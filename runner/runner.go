// Package runner holds a slot while a command runs: it waits for the slot,
// starts the command, passes signals on, gives the slot back on every way out,
// and tells how it went.
//
// One goroutine, the caller's, owns all state of a run and takes its events,
// one by one, from the relay: signals, among them those of children, and
// wake-ups. Another one waits for the slot (acquire.go) and ends with that. On
// a leased store two more renew the lease and hear of it (keeper.go), and a
// process of its own, the guard, stands between golock and the command
// (guard.go).
package runner

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks"
	"golock/signals"
)

// Run is one run of a command under a lock. The fields are read only, but for
// the request's Ref: a place in the queue that was given up is never taken
// again.
type Run struct {
	Store   locks.Store
	Address string        // its URL as it was given, for the guard of a leased store
	Request locks.Request // NoWait is set from Wait
	Wait    time.Duration // longest time to wait for the slot; negative: for ever

	Argv []string // the command; not empty
	Env  []string // its environment, without what a run adds

	Relay    *signals.Relay
	Terminal bool // there is a controlling terminal

	TimeLimit  time.Duration // of the command, 0: none
	StopSignal syscall.Signal
	KillAfter  time.Duration // from the stop signal to KILL
	Rewrites   signals.Rewrites
	Tree       bool // wait for all descendants, stop them all
	Close      bool // do not hand the lock's descriptors on
	Exec       bool // become the command
	OnlyWarn   bool // when the slot is lost: do not stop the command

	// Sockets is the directory where other golocks of this user look for the one
	// that holds a slot (see held); nil: nobody is to ask.
	Sockets func() (dir string, err error)

	// Log takes one step of the run: a message and pairs of name and value.
	Log func(warn bool, message string, pairs ...any)

	// Waits, if not nil, is told of the waiting: when the run has queued, and
	// again when the time is over that it has returned (0: not any more). With
	// nil it is told that the waiting is over, before the command is started. It
	// may keep the view until the next call.
	Waits func(w *Waiting) (again time.Duration)

	// Say takes what a user wants to know of a run that goes well.
	Say func(message string)

	strangers []process    // see strangers
	unwanted  func() error // asked at every wake-up of the waiting; not nil: it ends
}

// Kind says how a run went.
type Kind int

// What a run comes to.
const (
	Ended         Kind = iota // the command ran and ended: Status
	TimedOut                  // the command was ended at its time limit
	NotFound                  // there is no such command: Err
	NotExecutable             // the command could not be executed: Err
	Busy                      // no slot in time: Err
	Interrupted               // told to stop while waiting: Signal
	Refused                   // the store could not be used, or refused the request: Err
	Fault                     // a fault of golock's own: Err
	Lost                      // the slot was lost or taken back and the command stopped: Err
	Unwanted                  // whom the slot was for has gone: Err; only of a Keep
)

// Outcome is the result of a run. Unless the kind is Ended or TimedOut the
// command did not run, or (Fault, Lost) was stopped.
type Outcome struct {
	Kind   Kind
	Status syscall.WaitStatus
	Signal syscall.Signal
	Err    error

	Began  time.Time
	Waited time.Duration // for the slot, or until the waiting ended otherwise
	Ran    time.Duration // 0: the command did not run
	Grant  locks.Grant   // zero: there was no slot
}

// releaseLimit bounds the giving back of a slot.
const releaseLimit = 2 * time.Second

// Do does the run. It returns when the command has ended and the slot is free
// again, or when there is nothing to wait for.
func (r *Run) Do() (out Outcome) {
	began := time.Now()
	defer func() { out.Began = began }()
	r.strangers = strangers()
	cmd := prepare(r.Argv, r.Env, r.Request, r.Store.URL())
	g := r.guard(cmd)
	defer g.dismiss()
	var d, early *desk
	if _, ok := r.Store.(locks.Witness); !ok { // else the store tells who asks
		d = r.desk()
		defer d.close() // after the release, for which others wait
	}
	if r.Store.Traits().Leased { // else there is nothing to be done meanwhile
		early = d
	}
	lease, pending, failed := r.acquire(g, early)
	waited := time.Since(began)
	if failed != nil {
		failed.Waited = waited
		return *failed
	}
	defer func() {
		if v := recover(); v != nil {
			out = faultOf(v)
			_ = lease.Release(context.Background())
		}
	}()
	grant := lease.Grant()
	r.Log(false, "slot taken", "slots", joinInts(grant.Slots), "fence", grant.Fence, "waited", waited, "id", grant.Ref.String())
	out = r.hold(lease, cmd, g, d, pending)
	out.Grant, out.Waited = grant, waited
	r.release(lease, out.Kind) // before anything is told: others wait for it
	if out.Kind == Ended || out.Kind == TimedOut {
		r.Log(false, "command ended", "status", statusText(out.Status))
	}
	return out
}

// hold runs the command. When it returns, also after a panic, no command is
// running any more.
func (r *Run) hold(lease locks.Lease, cmd *command, g *guard, d *desk, pending []syscall.Signal) (out Outcome) {
	s := &supervisor{Run: r, kin: own{}, guard: g, desk: d, lease: lease}
	defer d.shut()
	defer func() {
		if v := recover(); v != nil {
			s.endNow()
			out = faultOf(v)
		}
		if !s.spawned.IsZero() {
			out.Ran = max(time.Since(s.spawned), 1)
		}
	}()
	var err error
	known := len(cmd.env)
	cmd.grant(lease.Grant())
	if in, ok := lease.(locks.Inherited); ok && !r.Close {
		cmd.inherit = in.Files()
	}
	if r.Exec {
		return r.become(lease, cmd, pending)
	}
	if l, ok := lease.(locks.Leased); ok {
		if err := s.keepAlive(l); err != nil {
			return Outcome{Kind: Fault, Err: err}
		}
		defer s.letGo()
	}
	if err := d.serve(slot{lease: lease, lost: s.hintLost}); err != nil {
		r.Log(false, "golock held will not be answered", "error", err)
	}
	pending, told := r.lastSignals(pending)
	if told != 0 {
		return interrupted(lease, told)
	}
	if r.Tree {
		becomeSubreaper() // before there is anybody to miss
	}
	if g != nil {
		s.kin = g
		s.pid, err = g.start(cmd.env[known:], s.keep)
	} else {
		r.Relay.AsCaller(func() { s.pid, err = cmd.spawn(&syscall.SysProcAttr{Setpgid: !r.Terminal}) })
	}
	if err != nil {
		return notStarted(err)
	}
	s.spawned = time.Now()
	s.listen()
	if l, ok := lease.(locks.Settler); ok {
		l.Settle()
	}
	r.Log(false, "command started", "pid", s.pid)
	if w, ok := r.Store.(locks.Warner); ok {
		for _, warning := range w.Warnings() {
			r.Log(true, warning)
		}
	}
	return s.supervise(pending)
}

// become executes the command in golock's place. It returns only if that
// cannot be. Signals that came before, for the command, do to this process what
// they would do to a command that has just begun.
func (r *Run) become(lease locks.Lease, cmd *command, pending []syscall.Signal) Outcome {
	r.Relay.Yield()
	pending, told := r.lastSignals(pending)
	if told != 0 {
		return interrupted(lease, told)
	}
	var err error
	r.Relay.AsCaller(func() {
		for _, sig := range pending {
			_ = unix.Kill(unix.Getpid(), sig)
		}
		err = cmd.exec()
	})
	return notStarted(err)
}

// interrupted is the outcome of a run that was told to stop before its command
// was started.
func interrupted(lease locks.Lease, told syscall.Signal) Outcome {
	if told == unix.SIGTERM {
		if err := marked(lease); err != nil {
			return Outcome{Kind: Lost, Err: err}
		}
	}
	return Outcome{Kind: Interrupted, Signal: told}
}

// marked is the error of a lease whose owner has been told by SIGTERM that it
// is evicted.
func marked(lease locks.Lease) error {
	if l, ok := lease.(locks.Marked); ok {
		if err := l.Evicted(); err != nil {
			return takenBack(err)
		}
	}
	return nil
}

func takenBack(err error) error { return fmt.Errorf("the slot was taken back: %w", err) }

func faultOf(v any) Outcome {
	p, ok := v.(*locks.PanicError)
	if !ok {
		p = locks.NewPanicError(v)
	}
	return Outcome{Kind: Fault, Err: p}
}

// release gives the slot back. A failure is told and changes nothing else: the
// command has ended. If it never began, the hold is given back as well: another
// host may be able to run it.
func (r *Run) release(lease locks.Lease, how Kind) {
	ctx := context.Background()
	if r.Store.Traits().Leased { // elsewhere nobody is waited for, and the first timer of a process costs more than the release
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, releaseLimit)
		defer cancel()
	}
	if err := lease.Release(ctx); err != nil && !errors.Is(err, locks.ErrLost) {
		r.Log(true, "the slot could not be given back", "error", err)
		return
	}
	if r.Request.Hold <= 0 {
		r.Log(false, "slot given back")
		return
	}
	if how != NotFound && how != NotExecutable && how != Interrupted {
		r.Log(false, "slot given back", "held", r.Request.Hold)
		return
	}
	if s, ok := r.Store.(locks.Evicter); ok {
		if err := s.Evict(ctx, lease.Grant().Ref, "nothing was begun with it"); err != nil && !errors.Is(err, locks.ErrLost) {
			r.Log(true, "the slot stays taken for its hold", "error", err)
			return
		}
	}
	r.Log(false, "slot given back")
}

func notStarted(err error) Outcome {
	switch {
	case errors.Is(err, errGuardGone):
		return Outcome{Kind: Fault, Err: err}
	case errors.Is(err, errGuardMute): // until the lease was over
		return Outcome{Kind: Lost, Err: fmt.Errorf("%w: %w", errTooLate, err)}
	case errors.Is(err, unix.ETIME):
		return Outcome{Kind: Lost, Err: errTooLate}
	}
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return Outcome{Kind: NotFound, Err: err}
	}
	return Outcome{Kind: NotExecutable, Err: err}
}

// HasTerminal reports whether this process has a controlling terminal,
// whatever its standard input is.
func HasTerminal() bool {
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	unix.Close(fd)
	return true
}
