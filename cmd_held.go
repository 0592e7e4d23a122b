package main

import (
	"context"
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"golock/config"
	"golock/held"
	"golock/locks"
	"golock/locks/open"
	"golock/signals"
)

// heldCommand is the grammar of golock held.
type heldCommand struct {
	idFlags
	ID *word `name:"id"`
}

func (c *heldCommand) run(out *printer) int {
	if c.ID != nil {
		return out.exitAsk(c.ask(string(*c.ID), stillHeld), true)
	}
	return out.exitAsk(c.inside(), true)
}

// inside asks for the slot of the run around this process. The URL of its store
// that is in the environment has no secrets; that is enough to find a store of
// the kernel's. For the others the golock of that run answers.
func (c *heldCommand) inside() error {
	id := os.Getenv("GOLOCK_ID")
	if id == "" {
		return usageError{errors.New("not inside a golock run (GOLOCK_ID is not set): name the slot with --id ID")}
	}
	ref, err := parseID(id)
	if err != nil {
		return err
	}
	// The golock that is asked may find out by that that the slot is lost, and
	// stop all that it has started. A script that bears that is to hear 79 from
	// this process, and not that it was stopped too.
	signals.Ignore(unix.SIGTERM)
	ctx, cancel := context.WithTimeout(context.Background(), askLimit)
	defer cancel()
	var store locks.Store
	url := os.Getenv("GOLOCK_LOCK_STORE")
	if url == "" && c.Store == nil && c.Config == nil {
		if err := askHolder(ctx, ref, held.Still); !errors.Is(err, held.ErrNobody) {
			return err
		}
	}
	if url == "" || c.Store != nil || c.Config != nil {
		store, err = c.store()
	} else if store, err = open.Store(url); err != nil {
		err = &config.Error{Source: config.Source{Env: "GOLOCK_LOCK_STORE"}, Problem: err.Error()}
	}
	if err != nil {
		return err
	}
	defer store.Close()
	if _, ok := store.(locks.Witness); !ok && c.Store == nil && c.Config == nil {
		return stillHeld(ctx, ref, nil) // that golock or nobody
	}
	return stillHeld(ctx, ref, store)
}
