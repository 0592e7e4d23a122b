package cli

import (
	"context"
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"golock/cli/term"
	"golock/config"
	"golock/internal/held"
	"golock/locks"
	"golock/locks/open"
	"golock/signals"
)

// idFlag names an entry.
type idFlag struct {
	ID textFlag `name:"id" placeholder:"ID" help:"The entry: what acquire printed, GOLOCK_ID, or an id of golock ls --json."`
}

type heldCommand struct{ entryFlags }

func (*heldCommand) Help() string {
	return `For the moment before a step that must not be done without the slot. Without an ID it
asks for the run around. On a networked store the lease is renewed first. Prints nothing.

Examples:
  golock run --name site -- sh -c 'build new && golock held && mv new current'
  golock held "$id" || exit

Exit codes: 0 still held, 79 not any more (or nobody answers), 69 unknown`
}

func (c *heldCommand) run(*term.Printer) error {
	ref, given, err := c.id()
	if err == nil && given {
		err = withEntry(c, ref, renewEntry)
	} else if err == nil {
		err = c.ownRun()
	}
	if errors.Is(err, locks.ErrLost) { // which is an answer
		return exitError{code: exitLost}
	}
	return err
}

// ownRun asks for the slot of the run around this process. The URL in the
// environment has no secrets: it is enough for a store of the kernel's. For
// others the golock of that run answers.
func (c *heldCommand) ownRun() error {
	id := os.Getenv("GOLOCK_ID")
	if id == "" {
		return usageError{errors.New("not inside a golock run (GOLOCK_ID is not set): name the slot with --id ID")}
	}
	ref, err := parseID(id)
	if err != nil {
		return err
	}
	// The golock that is asked may find that the slot is lost, and stop what it
	// has started, this process too. A caller that survives needs 79.
	signals.Ignore(unix.SIGTERM)
	if c.Store.given() || c.StoreFile.given() || c.Config.given() {
		return withEntry(c, ref, renewEntry)
	}
	ctx, cancel := context.WithTimeout(context.Background(), statusLimit)
	defer cancel()
	url := os.Getenv("GOLOCK_LOCK_STORE")
	if url == "" {
		if err := askHolder(ctx, ref, held.Still); !errors.Is(err, held.ErrNobody) {
			return err
		}
		return withEntry(c, ref, renewOwn)
	}
	store, err := open.Store(url)
	if errors.Is(err, open.ErrNotLinked) { // the golock of the run answers, or nobody
		return renewEntry(ctx, ref, nil)
	}
	if err != nil {
		return &config.Error{Source: config.Source{Env: "GOLOCK_LOCK_STORE"}, Problem: err.Error()}
	}
	defer store.Close()
	return renewOwn(ctx, ref, store)
}

// renewOwn does without a store that cannot tell who holds: the golock of the run
// answers, or nobody.
func renewOwn(ctx context.Context, ref locks.Ref, store locks.Store) error {
	if locks.KindOf(store) != locks.LocalQueue {
		store = nil
	}
	return renewEntry(ctx, ref, store)
}
