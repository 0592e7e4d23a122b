package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"golock/cli/term"
	"golock/config"
	"golock/locks"
	"golock/locks/open"
	"golock/runner"
	"golock/runner/held"
	"golock/signals"
)

// idFlag names an entry.
type idFlag struct {
	ID textFlag `name:"id" brief:"" placeholder:"ID" help:"The ID of the entry: printed by acquire, in GOLOCK_ID, or shown by golock ls --json."`
}

type heldCommand struct{ entryFlags }

func (*heldCommand) Help() string {
	return `Call it before a step that must not be done without the slot. Without an ID it asks
about the run that it is inside. On a networked store it renews the lease first. It
prints only why it cannot tell (69). A script that goes on in that case:
  golock held; [ $? -ne 79 ] || exit 79

Examples:
  golock run --name site -- sh -c 'build new && golock held && mv new current'
  golock held "$id" || exit

Exit codes: 0 still held, 79 not held any more, 69 cannot tell`
}

func (c *heldCommand) run(*term.Printer) error {
	err := c.ask()
	if errors.Is(err, locks.ErrLost) { // the exit code is the answer
		return exitError{code: exitLost}
	}
	return err
}

// ask asks about the slot that an argument or --id names, otherwise about the slot of the run around this
// process.
func (c *heldCommand) ask() error {
	id := os.Getenv("GOLOCK_ID")
	silent := &term.Printer{Quiet: true} // held prints nothing but why it cannot tell
	switch {
	case c.Entry.given() || c.ID.given():
		return c.runQuestion(silent, held.Confirm)
	case id == "":
		return usageError{errors.New("not inside a golock run (GOLOCK_ID is not set): name the slot with --id ID")}
	}
	// The golock that is asked may find that the slot is lost, and stop its command with
	// this process. A caller that survives needs 79.
	signals.Ignore(unix.SIGTERM)
	if c.Store.given() || c.StoreFile.given() || c.Config.given() {
		c.ID.texts = []string{id}
		return c.runQuestion(silent, held.Confirm)
	}
	return c.askEnclosing(id)
}

// askEnclosing asks about the slot of the run around this process. GOLOCK_LOCK_STORE names its store, but
// without a password, so this process may be unable to open a store on a server. Then only the golock of
// the run answers.
func (c *heldCommand) askEnclosing(id string) error {
	ref, err := parseID(id)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), statusLimit)
	defer cancel()
	url := os.Getenv("GOLOCK_LOCK_STORE")
	if url == "" {
		err := askHolder(ctx, ref, held.Confirm)
		if !errors.Is(err, held.ErrNobody) {
			return err
		}
		_, store, err := resolveStore(c)
		if err != nil {
			return err
		}
		return askOfRun(ctx, ref, store)
	}
	store, err := open.Store(url)
	switch {
	case err == open.ErrNotLinked:
		return askOfRun(ctx, ref, locks.KnownStore{IsNetworked: true})
	case err != nil:
		return &config.Error{Source: config.Source{Env: "GOLOCK_LOCK_STORE"}, Problem: err.Error()}
	}
	return askOfRun(ctx, ref, locks.Know(store))
}

// askOfRun asks whether the run around this process still has its slot. A local queue itself knows that.
// For other stores the golock of the run answers; if there is none, the slot is lost.
func askOfRun(ctx context.Context, ref locks.Ref, store locks.KnownStore) error {
	if store.IsLocalQueue {
		return holdsAll(ctx, store.Can.Queue, ref)
	}
	err := askHolder(ctx, ref, held.Confirm)
	if err == held.ErrNobody {
		return locks.ErrLost
	}
	return err
}

// holdsAll asks a local queue whether the run of an entry has all its slots. If that is the run around this
// process, GOLOCK_HELD has the IDs of its other entries.
func holdsAll(ctx context.Context, queue locks.Queue, ref locks.Ref) error {
	for word := range strings.SplitSeq(os.Getenv(runner.EnvHeld), ",") {
		other, err := locks.ParseRef(word)
		if err != nil || other == ref || !other.IsOfRun(ref) {
			continue
		}
		if err := locks.Holds(ctx, queue, other); err != nil {
			return err
		}
	}
	return locks.Holds(ctx, queue, ref)
}

type releaseCommand struct{ entryFlags }

type renewCommand struct{ entryFlags }

func (*releaseCommand) Help() string {
	return `Releases only what golock acquire took; a run releases its slot itself.

Examples:
  golock release "$id"

Exit codes: 0 released, 79 not held any more, 69 the store cannot be reached`
}

func (*renewCommand) Help() string {
	return `Examples:
  golock renew "$id"

Exit codes: 0 renewed, 79 not held any more, 69 the store cannot be reached`
}

func (c *releaseCommand) run(out *term.Printer) error { return c.runQuestion(out, held.Release) }

func (c *renewCommand) run(out *term.Printer) error { return c.runQuestion(out, held.Confirm) }

// statusLimit limits a question about an entry.
const statusLimit = 5 * time.Second

// runQuestion asks about the entry with the ID, in the store that the flags name. Warnings go to out.
func (a *entryFlags) runQuestion(out *term.Printer, q held.Question) error {
	signals.EndByDefault()
	if err := mergeArgument(&a.Entry, &a.ID, "--id"); err != nil {
		return err
	}
	if !a.ID.given() {
		return usageError{errors.New("missing ID: what golock acquire printed")}
	}
	ref, err := parseID(a.ID.text())
	if err != nil {
		return err
	}
	v, store, err := resolveStore(a)
	if err != nil {
		return err
	}
	defer store.Close()
	warn(out, v)
	ctx, cancel := context.WithTimeout(context.Background(), statusLimit)
	defer cancel()
	return askHolderOrStore(ctx, ref, store, q)
}

func parseID(text string) (locks.Ref, error) {
	ref, err := locks.ParseRef(text)
	if err != nil {
		return ref, usageError{err}
	}
	return ref, nil
}

// askHolder asks the golock of this user that holds the slot. It returns held.ErrNobody if there is no such
// golock. An error that wraps held.ErrNobody says that there may be one, but it cannot be asked.
func askHolder(ctx context.Context, ref locks.Ref, q held.Question) error {
	dir, _ := existingSocketDir()
	err := held.Ask(ctx, dir, ref.String(), q)
	switch {
	case err == held.ErrRefused:
		return errHeldByRun(ref)
	case err != held.ErrNobody:
		return err
	}
	// Without a directory for sockets, a holder cannot be asked.
	if _, noDirectory := socketDir(); noDirectory != nil {
		return fmt.Errorf("cannot tell whether %s is held: %w: %w", ref, held.ErrNobody, noDirectory)
	}
	return held.ErrNobody
}

// errHeldByRun is the refusal to release the slot of a run: only the run itself can release it.
func errHeldByRun(ref locks.Ref) error {
	return usageError{fmt.Errorf("%s is the slot of a run; the run releases it when its command has ended", ref)}
}

// askHolderOrStore puts a question about a slot to the golock that holds it. If no golock answers, it asks the store, or
// has it release the slot.
func askHolderOrStore(ctx context.Context, ref locks.Ref, store locks.KnownStore, q held.Question) error {
	if store.IsLocalQueue && q == held.Confirm {
		return holdsAll(ctx, store.Can.Queue, ref)
	}
	err := askHolder(ctx, ref, q)
	if !errors.Is(err, held.ErrNobody) {
		return err
	}
	switch {
	case store.IsNetworked && q == held.Confirm:
		return store.Can.Leases.Attach(ref).Confirm(ctx)
	case store.IsNetworked:
		return releaseInStore(ctx, ref, store)
	case store.IsLocalQueue:
		if err := locks.Holds(ctx, store.Can.Queue, ref); err != nil {
			return err
		}
		return usageError{fmt.Errorf("%s is held, but not by a golock acquire of this user: only its holder can release it", ref)}
	case err != held.ErrNobody: // err says why a holder could not be asked
		return err
	}
	return locks.ErrLost
}

// releaseInStore releases a slot whose holder does not answer here: it may be another user's, or on another
// host. The slot of a run is not released.
func releaseInStore(ctx context.Context, ref locks.Ref, store locks.KnownStore) error {
	e, err := store.Can.Queue.Find(ctx, ref)
	if err != nil && !errors.Is(err, locks.ErrLost) { // Release answers for an entry that is gone
		return err
	}
	if e.Runs && !e.Ended {
		return errHeldByRun(ref)
	}
	return store.Can.Leases.Attach(ref).Release(ctx)
}
