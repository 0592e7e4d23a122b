package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golock/cli/term"
	"golock/internal/held"
	"golock/locks"
	"golock/locks/open"
)

type releaseCommand struct{ entryFlags }

type renewCommand struct{ entryFlags }

func (*releaseCommand) Help() string {
	return `Only what golock acquire took can be released; a run does that itself.

Examples:
  golock release "$id"

Exit codes: 0 released, 79 not held any more, 69 the store cannot be reached`
}

func (*renewCommand) Help() string {
	return `Examples:
  golock renew "$id"

Exit codes: 0 renewed, 79 not held any more, 69 the store cannot be reached`
}

func (c *releaseCommand) run(*term.Printer) error { return c.do(c, releaseEntry) }

func (c *renewCommand) run(*term.Printer) error { return c.do(c, renewEntry) }

func (a *entryFlags) do(command any, action func(context.Context, locks.Ref, locks.Store) error) error {
	ref, given, err := a.id()
	switch {
	case err != nil:
		return err
	case !given:
		return usageError{errors.New("missing ID: what golock acquire printed")}
	}
	return withEntry(command, ref, action)
}

// statusLimit bounds a question about an entry, opening the store included.
const statusLimit = 5 * time.Second

// withEntry calls an action for the entry with an ID, in the store that the
// command's flags name.
func withEntry(command any, ref locks.Ref, action func(context.Context, locks.Ref, locks.Store) error) error {
	v, err := resolve(command, nil)
	if err != nil {
		return err
	}
	store, err := openStore(v)
	if err != nil {
		return err
	}
	defer store.Close()
	ctx, cancel := context.WithTimeout(context.Background(), statusLimit)
	defer cancel()
	return action(ctx, ref, store)
}

func parseID(text string) (locks.Ref, error) {
	ref, err := locks.ParseRef(text)
	if err != nil {
		return ref, usageError{err}
	}
	return ref, nil
}

// askHolder asks the golock that holds the slot, if it is one of this user's.
// held.ErrNobody: there is none.
func askHolder(ctx context.Context, ref locks.Ref, q held.Question) error {
	dir, err := open.Directory(false)
	if err != nil {
		return held.ErrNobody // a holder would have no directory for its socket either
	}
	answer, err := held.Ask(ctx, dir, ref.String(), q)
	switch {
	case answer == held.Yes:
		return nil
	case answer == held.No:
		return locks.ErrLost
	case answer == held.Refused:
		return errOfRun(ref)
	case err == nil:
		return errors.New("its state is unknown at the moment")
	}
	return err
}

// errOfRun says that nobody else can release a run's slot.
func errOfRun(ref locks.Ref) error {
	return usageError{fmt.Errorf("%s is the slot of a run, which releases it itself when its command has ended", ref)}
}

// renewEntry finds out whether a slot is held, and renews its lease. store may
// be nil.
func renewEntry(ctx context.Context, ref locks.Ref, store locks.Store) error {
	if s, ok := store.(locks.QueueStore); ok && locks.KindOf(store) == locks.LocalQueue {
		return locks.Holds(ctx, s, ref)
	}
	err := askHolder(ctx, ref, held.Still)
	if !errors.Is(err, held.ErrNobody) {
		return err
	}
	if s, ok := store.(locks.LeaseStore); ok {
		_, err := s.Attach(ref).Renew(ctx)
		return err
	}
	return locks.ErrLost
}

func releaseEntry(ctx context.Context, ref locks.Ref, store locks.Store) error {
	err := askHolder(ctx, ref, held.Release)
	if !errors.Is(err, held.ErrNobody) {
		return err
	}
	switch s := store.(type) {
	case locks.LeaseStore:
		// The holder may be another user's or on another host. Of an entry that is
		// gone the release knows more.
		e, err := s.Find(ctx, ref)
		if err != nil && !errors.Is(err, locks.ErrLost) {
			return err
		}
		if e.Runs && !e.Ended {
			return errOfRun(ref)
		}
		return s.Attach(ref).Release(ctx)
	case locks.QueueStore:
		if err := locks.Holds(ctx, s, ref); err != nil {
			return err
		}
		return usageError{fmt.Errorf("%s is held, but not by a golock acquire of this user: only its holder can release it", ref)}
	}
	return locks.ErrLost
}
