package cli

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"

	"golang.org/x/sys/unix"

	"golock/cli/term"
	"golock/config"
	"golock/internal/procfs"
	"golock/locks"
	"golock/locks/open"
	"golock/runner"
	"golock/signals"
)

type acquireCommand struct {
	slotFlags
	For textFlag `name:"for" file:"no" placeholder:"PID|none" help:"The process whose end frees the slot, $$$$ in a shell; or none, on a networked store."`
	logFlags
}

func (*acquireCommand) Help() string {
	return `Prints the ID of the slot alone on standard output. A holder process keeps the slot
until golock release ID, or until the process of --for has ended in whatever way.
With --for none, on a networked store, no process holds it: it is free after --ttl
unless golock renew ID renews it.

Examples:
  id=$(golock acquire --name deploy --for $$) || exit
  trap 'golock release "$id"' EXIT
  build; golock held --id "$id" && mv build/new /srv/site
        a script of its own; when it is killed the slot is free at once
  id=$(golock acquire --name data --shared --wait 10m --for $$)
        beside other readers, if there is no writer for ten minutes
  id=$(golock acquire --name env-3 --store redis://locks --ttl 2h --for none)
        a slot that outlives the job; another job calls golock release "$id"

Exit codes:
  64 usage, 69 store not usable, 75 no slot in time or the process has ended (-E),
  78 configuration, 128+N stopped by signal N while it waited`
}

// acquisition is what golock acquire has to do.
type acquisition struct {
	run          *runner.Run
	process      int // a pidfd; -1: the slot is for none
	pid          int
	conflictCode int
}

func (c *acquireCommand) run(out *term.Printer) error {
	v, run, err := prepare(c, out)
	if err != nil {
		return err
	}
	a := &acquisition{run: run}
	if err := c.readSettings(v, a, out); err != nil {
		return err
	}
	if a.process < 0 {
		a.run.Waits = out.Waits()
		return a.forNone(out)
	}
	return a.forProcess(out)
}

// readSettings finds out what is asked for and checks it.
func (c *acquireCommand) readSettings(v *config.Values, a *acquisition, out *term.Printer) (err error) {
	if !c.For.given() {
		return usageError{errors.New("missing --for: name the process whose end frees the slot, in a shell --for $$ (or --for none on a networked store)")}
	}
	// Before anything that takes time: a later process could get the same number.
	if err := a.openProcess(v); err != nil {
		return err
	}
	if a.conflictCode, err = readSlot(v, a.run, out); err != nil {
		return err
	}
	if a.process < 0 && !locks.HasLeases(a.run.Store) {
		return usageError{fmt.Errorf("--for none needs a networked store: on %s a slot is held by a process; in a shell --for $$", a.run.Store.URL())}
	}
	a.run.Request.NoGolock = a.process < 0
	readLease(v, a.run, out)
	if v.Err() == nil && a.process >= 0 {
		// Where others will find the holder process: fail before the slot is taken.
		_, err = open.Directory(true)
	}
	return cmp.Or(v.Err(), err)
}

func (a *acquisition) openProcess(v *config.Values) (err error) {
	text := v.Text("for")
	a.process, a.run.Argv = -1, []string{"golock", "acquire", "--for", text}
	if text == "none" {
		return nil
	}
	if a.pid, err = config.ParseInt(text, 1, math.MaxInt32); err != nil {
		return v.Errorf("for", "%q is neither the number of a process nor none", locks.Printable(text, 40))
	}
	a.process, err = unix.PidfdOpen(a.pid, 0)
	ended, _ := unix.Poll([]unix.PollFd{{Fd: int32(a.process), Events: unix.POLLIN}}, 0)
	switch {
	case err == unix.ESRCH:
		return v.Errorf("for", "there is no process %d", a.pid)
	case err == unix.EINVAL || err == unix.ENOENT:
		return v.Errorf("for", "%d is a thread, not a process", a.pid)
	case err == unix.ENOSYS || err == unix.EPERM:
		return errors.New("--for PID needs Linux 5.3 or later, where the end of a process can be watched")
	case err != nil:
		return fmt.Errorf("--for %d: pidfd_open: %w", a.pid, err)
	case ended > 0:
		return v.Errorf("for", "process %d has ended", a.pid)
	}
	if argv := procfs.Command(a.pid); argv != nil {
		a.run.Argv = argv
	}
	return nil
}

// forNone takes the slot and leaves it to its lease.
func (a *acquisition) forNone(out *term.Printer) error {
	lease, o := a.run.Take()
	if o != nil {
		return ending(out, *o, codeOfRun(*o), a.conflictCode)
	}
	if err := printID(lease.Grant().Ref.String()); err != nil {
		a.run.GiveBack(lease) // nobody knows its ID
		return err
	}
	return nil
}

// forProcess lets a holder process take the slot and keep it.
func (a *acquisition) forProcess(out *term.Printer) error {
	h, err := startHolder(a, out)
	if err != nil {
		return err
	}
	r := h.await(a.run)
	if r.ID == "" {
		h.abandon()
		return ending(out, runner.Outcome{Kind: r.Kind, Signal: r.Signal, Err: errors.New(r.Text)}, r.Code, a.conflictCode)
	}
	if err := printID(r.ID); err != nil {
		h.abandon() // it releases the slot
		return err
	}
	_, _ = h.socket.Write([]byte{'\n'}) // the ID is printed
	return nil
}

// ending is how golock ends after an outcome with that exit code. That there was no slot in
// time is no failure with -E 0.
func ending(out *term.Printer, o runner.Outcome, code, conflictCode int) error {
	switch o.Kind {
	case runner.Busy:
		if conflictCode == 0 {
			out.Step(o.Err.Error())
			return nil
		}
		code = conflictCode
	case runner.Interrupted:
		out.Step("told to stop while waiting", "signal", signals.Name(o.Signal))
		return exitError{code: code}
	}
	return exitError{code, o.Err}
}

// printID prints the ID alone, to a copy of standard output: os.Stdout would end the
// process if nobody reads (SIGPIPE), and the slot would be left to its lease.
func printID(id string) error {
	fd, err := unix.FcntlInt(uintptr(unix.Stdout), unix.F_DUPFD_CLOEXEC, 3)
	if err == nil {
		out := os.NewFile(uintptr(fd), os.Stdout.Name())
		defer out.Close()
		_, err = out.WriteString(id + "\n") // all of it, and waits where the pipe is full
	}
	if err != nil {
		return outputError{err}
	}
	return nil
}
