package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golock/held"
	"golock/locks"
	"golock/locks/open"
)

// askLimit bounds a question about a slot, the way to the store included.
const askLimit = 5 * time.Second

// idFlags name a slot by its ID, and where it lives.
type idFlags struct {
	Store  *word
	Config *word
}

// store opens the store that flags, environment or files name. The name of the
// lock is none of their business: the ID says which it is.
func (f *idFlags) store() (locks.Store, error) {
	given := flags{}
	given.text("store", f.Store)
	given.text("config", f.Config)
	v, err := given.resolveWithout("GOLOCK_NAME")
	if err != nil {
		return nil, err
	}
	return storeOf(v)
}

// parseID understands an ID that the user has given.
func parseID(text string) (locks.Ref, error) {
	ref, err := locks.ParseRef(text)
	if err != nil {
		return ref, usageError{err}
	}
	return ref, nil
}

// askHolder asks the golock that holds the slot, if it is one of this user's.
// held.ErrNobody: it is not.
func askHolder(ctx context.Context, ref locks.Ref, q held.Question) error {
	dir, err := open.Directory(false)
	if err != nil {
		return held.ErrNobody // it could not have found a place to listen either
	}
	answer, why := held.Ask(ctx, dir, ref.String(), q)
	switch {
	case answer == held.Yes:
		return nil
	case answer == held.No:
		return locks.ErrLost
	case answer == held.Refused:
		return slotOfRun(ref)
	case why == nil:
		why = errors.New("nothing is known about it just now")
	}
	return why
}

// slotOfRun says that a slot is not for others to give back.
func slotOfRun(ref locks.Ref) error {
	return usageError{fmt.Errorf("%s is the slot of a run, which gives it back itself when its command has ended", ref)}
}

// stillHeld finds out whether a slot is held, and prolongs its lease if it is
// one. store may be nil.
func stillHeld(ctx context.Context, ref locks.Ref, store locks.Store) error {
	if s, ok := store.(locks.Witness); ok {
		return s.Holds(ctx, ref)
	}
	err := askHolder(ctx, ref, held.Still)
	if !errors.Is(err, held.ErrNobody) {
		return err
	}
	if s, ok := store.(locks.Attacher); ok {
		_, err := s.Attach(ref).Renew(ctx)
		return err
	}
	return locks.ErrLost
}

// giveBack gives a slot back.
func giveBack(ctx context.Context, ref locks.Ref, store locks.Store) error {
	err := askHolder(ctx, ref, held.Release)
	if !errors.Is(err, held.ErrNobody) {
		return err
	}
	switch s := store.(type) {
	case locks.Attacher:
		// The golock that holds it may be another user's, or on another machine. Of
		// what has gone the release tells more.
		e, err := s.Find(ctx, ref)
		if err != nil && !errors.Is(err, locks.ErrLost) {
			return err
		}
		if e.Runs && !e.Ended {
			return slotOfRun(ref)
		}
		return s.Attach(ref).Release(ctx)
	case locks.Witness:
		if err := s.Holds(ctx, ref); err != nil {
			return err
		}
		return usageError{fmt.Errorf("%s is held, but not by a golock acquire of this user: only its holder can give it back", ref)}
	}
	return locks.ErrLost
}

// ask does one of the above for the ID of a command line.
func (f *idFlags) ask(text string, what func(context.Context, locks.Ref, locks.Store) error) error {
	ref, err := parseID(text)
	if err != nil {
		return err
	}
	store, err := f.store()
	if err != nil {
		return err
	}
	defer store.Close()
	ctx, cancel := context.WithTimeout(context.Background(), askLimit)
	defer cancel()
	return what(ctx, ref, store)
}

// exitAsk gives the exit code of a question about a slot.
func (p *printer) exitAsk(err error, silent bool) int {
	if err == nil {
		return 0
	}
	if errors.Is(err, locks.ErrLost) {
		if !silent {
			p.fail(err)
		}
		return exitLost
	}
	return p.exit(err)
}
