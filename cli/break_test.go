package cli

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"golock/cli/term"
	"golock/locks"
)

// hanging is a store that answers nothing before its context ends.
type hanging struct{ locks.Queue }

func (hanging) Find(ctx context.Context, _ locks.Ref) (locks.Entry, error) {
	<-ctx.Done()
	return locks.Entry{}, ctx.Err()
}

// break --id ends when the store does not answer.
func TestBreakOfASilentStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		b := &eviction{breakCommand: &breakCommand{}, queue: hanging{}, out: &term.Printer{}}
		if err := b.evict(); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > evictLimit {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}
