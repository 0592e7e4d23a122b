package main

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"golock/config"
	"golock/locks"
	"golock/locks/open"
	"golock/runner"
	"golock/signals"
)

// acquireCommand is the grammar of golock acquire.
type acquireCommand struct {
	slotFlags
	For *word
	logFlags
}

var (
	errMissingFor = errors.New("missing --for: name the process whose end frees the slot, in a shell --for $$ (or --for none on a networked store)")
	errNoPidfd    = errors.New("--for PID needs Linux 5.3 or later, where the end of a process can be watched")
)

// acquisition is what golock acquire has to do.
type acquisition struct {
	run          *runner.Run
	process      int // a pidfd; -1: the slot is for none
	pid          int
	conflictCode int
}

func (c *acquireCommand) run(out *printer) int {
	terminal := runner.HasTerminal()
	relay, err := signals.NewRelay(terminal)
	if err != nil {
		return out.exit(err)
	}
	relay.Catch()
	a := &acquisition{run: &runner.Run{Relay: relay, Terminal: terminal}}
	if err := c.settle(a, out); err != nil {
		return out.exit(err)
	}
	a.run.Log, a.run.Say = out.log, out.say
	if a.process < 0 {
		a.run.Waits = out.waits()
	}
	if a.process < 0 {
		return a.forNone(out)
	}
	return a.forProcess(out)
}

// settle finds out what is asked for and checks it.
func (c *acquireCommand) settle(a *acquisition, out *printer) error {
	given := flags{}
	c.slotFlags.addTo(given)
	c.logFlags.addTo(given)
	v, err := given.resolve()
	if err != nil {
		return err
	}
	if err := out.logging(v); err != nil {
		return err
	}
	if c.For == nil {
		return usageError{errMissingFor}
	}
	// The process is looked up before anything else takes its time: a later one
	// of the same number is not meant.
	if err := a.watch(string(*c.For)); err != nil {
		return err
	}
	if a.conflictCode, err = slot(v, a.run, out); err != nil {
		return err
	}
	if a.process < 0 && !a.run.Store.Traits().Leased {
		return usageError{fmt.Errorf("--for none needs a networked store: on %s a slot is held by a process; in a shell --for $$", a.run.Store.URL())}
	}
	a.run.Request.NoGolock = a.process < 0
	if err := leasing(v, a.run, out); err != nil {
		return err
	}
	if a.process >= 0 {
		// Where others will find the keeper. Better to know now that there is no such place.
		_, err = open.Directory(true)
	}
	return err
}

// watch opens the process of --for.
func (a *acquisition) watch(text string) (err error) {
	a.process = -1
	if text == "none" {
		a.run.Argv = []string{"golock", "acquire", "--for", "none"}
		return nil
	}
	wrong := func(problem string, args ...any) error {
		return usageError{fmt.Errorf("--for: "+problem, args...)}
	}
	if a.pid, err = config.ParseInt(text, 1, math.MaxInt32); err != nil {
		return wrong("%q is neither the number of a process nor none", locks.Printable(text, 40))
	}
	a.process, err = unix.PidfdOpen(a.pid, 0)
	switch {
	case err == unix.ESRCH:
		return wrong("there is no process %d", a.pid)
	case err == unix.EINVAL || err == unix.ENOENT:
		return wrong("%d is a thread, not a process", a.pid)
	case err == unix.ENOSYS || err == unix.EPERM:
		return errNoPidfd
	case err != nil:
		return fmt.Errorf("--for %d: pidfd_open: %w", a.pid, err)
	case readable(a.process):
		return wrong("process %d has ended", a.pid)
	}
	a.run.Argv = commandOf(a.pid)
	return nil
}

// readable reports whether there is something to read, without waiting.
func readable(fd int) bool {
	ready := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(ready, 0)
	return err == nil && n > 0
}

// commandOf is what a process was started with, as far as it is of interest to
// those who look who holds a slot.
func commandOf(pid int) []string {
	const enough = 4096
	text, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	line := strings.TrimRight(string(text[:min(len(text), enough)]), "\x00")
	if line == "" {
		return []string{"golock", "acquire", "--for", strconv.Itoa(pid)}
	}
	return strings.Split(line, "\x00")
}

// forNone takes the slot and leaves it to its lease.
func (a *acquisition) forNone(out *printer) int {
	lease, failed := a.run.Take()
	if failed != nil {
		return a.failed(resultOf(*failed), out)
	}
	if err := printID(lease.Grant().Ref.String()); err != nil {
		withdraw(lease)
		return out.exit(err)
	}
	return 0
}

// forProcess has a keeper take the slot and keep it.
func (a *acquisition) forProcess(out *printer) int {
	k, err := startKeeper(a, out)
	if err != nil {
		return out.exit(err)
	}
	for {
		r, err := k.next(a.run)
		switch {
		case err != nil:
			k.dismiss()
			return out.exit(err)
		case r != nil && r.ID != "":
			if err := printID(r.ID); err != nil {
				k.dismiss() // it gives the slot back
				return out.exit(err)
			}
			k.confirm()
			return 0
		case r != nil:
			k.dismiss()
			return a.failed(*r, out)
		}
		if sig, _ := a.run.Relay.Next(-1); signals.EndsWaiting(sig) {
			k.dismiss()
			return a.failed(resultOf(runner.Outcome{Kind: runner.Interrupted, Signal: sig}), out)
		}
	}
}

// failed tells why there is no slot and gives the exit code.
func (a *acquisition) failed(r result, out *printer) int {
	switch {
	case r.Busy:
		if a.conflictCode != 0 && !out.quiet {
			out.fail(errors.New(r.Text))
		} else {
			out.step(r.Text)
		}
		return a.conflictCode
	case r.Signal != 0:
		out.step("told to stop while waiting", "signal", signals.Name(r.Signal))
	default:
		out.fail(errors.New(r.Text))
	}
	return r.Code
}

// printID prints what the caller is waiting for, and nothing else. It writes by
// itself: the library ends the process if nobody reads any more (SIGPIPE), and
// the slot would be left to its lease.
func printID(id string) error {
	for text := []byte(id + "\n"); len(text) > 0; {
		n, err := unix.Write(unix.Stdout, text)
		switch {
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			_, _ = unix.Poll([]unix.PollFd{{Fd: int32(unix.Stdout), Events: unix.POLLOUT}}, -1)
		case err != nil:
			return outputError{&os.PathError{Op: "write", Path: os.Stdout.Name(), Err: err}}
		default:
			text = text[n:]
		}
	}
	return nil
}

// result is how the taking of a slot went, in a form that a keeper can tell.
type result struct {
	ID     string         // it is there
	Code   int            // or not, and this is the exit code
	Busy   bool           // unless -E says otherwise
	Signal syscall.Signal // that told golock to stop
	Text   string         // the error
}

func resultOf(o runner.Outcome) result {
	r := result{Code: codeOfRun(o), Signal: o.Signal}
	if o.Err != nil {
		r.Text = o.Err.Error()
	}
	// That the process is gone which the slot was for is no fault of the store's:
	// there was none in time.
	if r.Busy = o.Kind == runner.Busy || o.Kind == runner.Unwanted; r.Busy {
		r.Code = exitBusy
	}
	return r
}

// keeperLimit bounds how long the keeper is waited for that has been told to
// stop: its place in the queue is gone then, or soon will be.
const keeperLimit = 80 * time.Millisecond
