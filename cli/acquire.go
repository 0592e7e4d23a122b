package cli

import (
	"errors"
	"fmt"
	"math"
	"os"

	"golang.org/x/sys/unix"

	"golock/cli/term"
	"golock/config"
	"golock/internal/pidfd"
	"golock/internal/procfs"
	"golock/locks"
	"golock/runner"
)

type acquireCommand struct {
	slotFlags
	For  textFlag `name:"for" brief:"" file:"no" placeholder:"PID|none" help:"Release the slot when process PID ends; in a shell write $$$$. With none, on a networked store, the slot ends after --ttl."`
	JSON boolFlag `name:"json" brief:"" help:"Print a JSON object instead of the ID alone: id, name, slots, fence, and on a networked store expires_in_ms."`
	logFlags
}

func (*acquireCommand) Help() string {
	return `Prints the ID of the slot on standard output, and nothing else there. A background
process of golock keeps the slot until golock release ID, or until the process of --for
ends, for whatever reason. With --for none, on a networked store, no process keeps it:
the slot ends after --ttl, unless golock renew ID extends it.

Examples:
  id=$(golock acquire --name deploy --for $$) || exit
  trap 'golock release "$id"' EXIT
  build; golock held --id "$id" && mv build/new /srv/site
        in a script; if the script is killed the slot is released at once
  id=$(golock acquire --name data --shared --wait 10m --for $$)
        a reader's lock; gives up if a writer holds the lock for ten minutes
  id=$(golock acquire --name env-3 --store redis://locks --ttl 2h --for none)
        a slot that outlives the job; another job calls golock release "$id"

Exit codes:
  64 usage, 69 store not usable, 75 no slot in time or the process has ended (-E),
  78 configuration; ended by signal N while it waited, it dies of N (128+N in a shell)`
}

func (c *acquireCommand) run(out *term.Printer) error {
	v, run, err := prepareRun(c, out)
	if err != nil {
		return err
	}
	if !c.For.given() {
		return usageError{errors.New("missing --for: name the process whose end frees the slot, in a shell --for $$ (or --for none on a networked store)")}
	}
	// The process is opened before anything that takes time: a later process could get the same number.
	process, err := openProcess(v, run)
	switch {
	case err != nil:
		return err
	case process == nil && lackOf(run.Store, "for none") != "":
		return usageError{fmt.Errorf("--for none needs a networked store: %s; in a shell --for $$", lackOf(run.Store, "for none"))}
	}
	conflictCode := readSlot(v, run, out)
	if v.Err() != nil {
		return v.Err()
	}
	run.Request.Keeper = locks.KeptByHolder
	if process == nil {
		run.Request.Keeper = locks.KeptByNobody
		return c.forNone(run, out, conflictCode)
	}
	return c.forProcess(run, out, process, conflictCode)
}

// openProcess opens the process of --for, and makes its command the one that ls shows. It returns nil for
// --for none.
func openProcess(v *config.Values, run *runner.Run) (process *pidfd.Process, err error) {
	text := v.Text("for")
	run.Argv = []string{"golock", "acquire", "--for", text}
	if text == "none" {
		return nil, nil
	}
	pid, err := config.ParseInt(text, 1, math.MaxInt32)
	if err != nil {
		return nil, v.Errorf("for", "expected the number of a process, or none, not %q", locks.Printable(text, 40))
	}
	process, err = pidfd.Open(pid)
	switch {
	case err == unix.ESRCH:
		err = v.Errorf("for", "there is no process %d", pid)
	case err == unix.EINVAL:
		err = v.Errorf("for", "%d is a thread, not a process", pid)
	case err == unix.ENOSYS || err == unix.EPERM:
		err = fmt.Errorf("--for %d: the process cannot be watched: that takes Linux 5.3 or later, or a /proc that shows it", pid)
	case err != nil:
		err = fmt.Errorf("--for %d: pidfd_open: %w", pid, err)
	case process.Ended():
		err = v.Errorf("for", "process %d has ended", pid)
	}
	if argv := procfs.Command(pid); argv != nil {
		run.Argv = argv
	}
	return process, err
}

// forNone takes the slot and leaves it to its lease.
func (c *acquireCommand) forNone(run *runner.Run, out *term.Printer, conflictCode int) error {
	run.OnProgress = out.OnProgress()
	lease, o := run.Take()
	if o != nil {
		return errorOfOutcome(out, *o, exitOfRun(*o), conflictCode)
	}
	err := c.printSlot(slotOf(lease.Grant(), lease.Term()), run.Request.Name)
	if err != nil {
		run.GiveBack(lease) // nobody knows its ID
	}
	return err
}

// forProcess lets a holder process take the slot and keep it.
func (c *acquireCommand) forProcess(
	run *runner.Run, out *term.Printer, process *pidfd.Process, conflictCode int,
) error {
	holder, err := c.startHolder(run, out, process)
	if err != nil {
		return err
	}
	slot, o, end := awaitHolder(holder, run.Relay, out)
	if slot == nil {
		abandonHolder(holder)
		return errorOfOutcome(out, o, end, conflictCode)
	}
	err = c.printSlot(*slot, run.Request.Name)
	if err != nil {
		abandonHolder(holder) // the holder releases the slot
		return err
	}
	_, _ = holder.Write([]byte{'\n'}) // says that the ID has been printed
	return nil
}

// heldSlot is what a holder process tells golock acquire about its slot. Slots is a text, such as 0-4095, which is
// short even for thousands of slots.
type heldSlot struct {
	ID      string
	Slots   string // locks.FormatSlots
	Fence   int64
	Expires *int64 // the rest of the lease in ms; nil on stores without leases
}

// takenSlot is what --json prints about a slot.
type takenSlot struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Slots   []int  `json:"slots"`
	Fence   int64  `json:"fence"`
	Expires *int64 `json:"expires_in_ms,omitempty"` // only on stores with leases
}

// slotOf describes a slot that was granted, with the time until its lease ends.
func slotOf(g locks.Grant, term locks.Term) heldSlot {
	slot := heldSlot{ID: g.Ref.String(), Slots: locks.FormatSlots(g.Slots), Fence: g.Fence}
	if term.Ends() {
		left := max(term.End().Sub(locks.BootTime()), 0)
		slot.Expires = new(left.Milliseconds())
	}
	return slot
}

// printSlot prints the ID alone, or with --json the slot. It writes to a copy of standard output: if nobody
// reads, a write to os.Stdout would end the process (SIGPIPE), and the slot would be left to its lease.
func (c *acquireCommand) printSlot(slot heldSlot, name string) error {
	text := slot.ID + "\n"
	if c.JSON.on() {
		slots, err := locks.ParseSlots(slot.Slots, locks.MaxUnits)
		if err != nil {
			return err
		}
		text = term.JSONText(takenSlot{
			ID: slot.ID, Name: name, Slots: append([]int{}, slots...), Fence: slot.Fence, Expires: slot.Expires,
		}, "  ")
	}
	if err := checkOutput(); err != nil {
		return err
	}
	fd, err := unix.FcntlInt(uintptr(unix.Stdout), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return outputError{err}
	}
	out := os.NewFile(uintptr(fd), os.Stdout.Name())
	defer out.Close()
	_, err = out.WriteString(text) // writes all of it, and waits while a pipe is full
	if err != nil {
		return outputError{err}
	}
	return nil
}
