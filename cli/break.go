package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golock/cli/term"
	"golock/locks"
)

type breakCommand struct {
	lockArgument
	idFlag
	olderThanFlag
	Dead boolFlag `name:"dead" help:"Only what has no golock any more: what a killed one has left running, and what only --hold keeps."`
	All  boolFlag `name:"all" help:"Waiters too; their exit code is 75."`
	storeFlags
	logFlags
}

func (*breakCommand) Help() string {
	return `Evicts: the golock of each holder stops its command (--signal, then KILL after
--kill-after or what its lease leaves) and exits with 79. golock break returns
when the slots are free. A slot that only a --hold keeps is free at once; what a
golock that was killed has left running is killed.

Examples:
  golock break deploy
  golock break nightly --older-than 6h
  golock break nightly --dead
        only what no golock looks after any more
  golock break --id $(golock ls --json deploy | jq -r '.[0].id')

Exit codes:
  0 what was selected is gone, also if that was nothing; 79 no such ID;
  69 something could not be evicted, or is not gone in 30 s (on a networked
  store: in twice its --ttl); the mark stays.`
}

// goneLimit is how long an evicted entry without a lease may take to go. One with a
// lease has twice its TTL.
const goneLimit = 30 * time.Second

// How often break looks whether an entry is gone, and how often it evicts it again: a
// store may have forgotten, or a new process may keep the slot of one that ended.
const (
	firstLook  = 5 * time.Millisecond
	lastLook   = 200 * time.Millisecond
	evictAgain = time.Second
)

// evictLimit bounds the attempts on a store that does not answer.
const evictLimit = 10 * time.Second

func (c *breakCommand) run(out *term.Printer) error {
	v, store, err := resolveStore(c)
	if err != nil {
		return err
	}
	defer store.Close()
	olderThan := v.Duration("older-than")
	if err := configureLog(out, v); err != nil {
		return err
	}
	host, _ := os.Hostname()
	// What evicted runs print.
	by := fmt.Sprintf("user %s (golock break, pid %d on %s)", term.UserName(os.Geteuid()), os.Getpid(), host)
	b := &eviction{breakCommand: c, out: out, by: by, olderThan: olderThan}
	switch {
	case c.Name.given() && c.ID.given():
		return usageError{errors.New("NAME and --id cannot be combined: an ID names its lock")}
	case c.ID.given() && c.All.on():
		return usageError{errors.New("--id and --all cannot be combined: an ID names one entry")}
	case c.ID.given():
		if b.ref, err = locks.ParseRef(c.ID.text()); err != nil {
			return usageError{fmt.Errorf("--id: %w", err)}
		}
	case !c.Name.given():
		return usageError{errors.New("missing NAME or --id; see golock break --help")}
	}
	evicter, ok := store.(locks.QueueStore)
	if !ok {
		return v.Errorf("store", "%s cannot take a slot back: end the process that has it", store.URL())
	}
	b.store = evicter
	err = b.do(context.Background())
	if b.gone == "" && err == nil {
		b.gone = "nothing to evict\n"
	}
	if out.Quiet {
		return err
	}
	return errors.Join(err, printOut(b.gone))
}

type eviction struct {
	*breakCommand
	ref       locks.Ref // of one entry, if there is no name
	olderThan time.Duration
	store     locks.QueueStore
	out       *term.Printer
	by        string
	gone      string // what was evicted, a line for each
}

func (b *eviction) wants(e locks.Entry) bool {
	waits := b.Name.given() && e.State == locks.Waiting && !b.All.on()
	alive := b.Dead.on() && !e.Orphaned && !e.Ended
	young := b.olderThan > 0 && time.Since(e.Since) < b.olderThan
	return !waits && !alive && !young
}

// entries lists what has the name, or the ID.
func (b *eviction) entries(ctx context.Context) ([]locks.Entry, error) {
	if !b.Name.given() {
		ctx, cancel := context.WithTimeout(ctx, evictLimit) // a file system may hang
		defer cancel()
		e, err := b.store.Find(ctx, b.ref)
		if errors.Is(err, locks.ErrLost) {
			return nil, nil
		}
		return []locks.Entry{e}, err
	}
	return b.store.Entries(ctx, b.Name.text())
}

func (b *eviction) do(ctx context.Context) error {
	all, err := b.entries(ctx)
	if err != nil {
		return err
	}
	if len(all) == 0 && !b.Name.given() {
		return fmt.Errorf("nothing has the ID %s: %w", b.ref, locks.ErrLost)
	}
	var failed []error
	var left []locks.Entry
	for _, e := range slices.Backward(all) { // waiters first: none is granted what a holder leaves
		if !b.wants(e) {
			continue
		}
		err := b.mark(ctx, e.Ref, evictLimit)
		switch {
		case errors.Is(err, locks.ErrLost): // it is gone already
		case err != nil:
			failed = append(failed, fmt.Errorf("%q: %w", e.Name, err))
		default:
			b.out.Step("evicted", "id", e.Ref.String(), "state", string(e.State), "pid", e.PID, "host", e.Host)
			left = append(left, e)
		}
	}
	return errors.Join(append(failed, b.await(ctx, left)...)...)
}

// mark marks an entry as evicted. It repeats attempts on a store that does not
// answer until limit is over.
func (b *eviction) mark(ctx context.Context, ref locks.Ref, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return b.store.Evict(ctx, ref, b.by)
}

// await returns when the entries are gone, with an error for each that stays too long.
func (b *eviction) await(ctx context.Context, left []locks.Entry) (failed []error) {
	began, marked := time.Now(), time.Now()
	for look := firstLook; len(left) > 0; look = min(2*look, lastLook) {
		time.Sleep(look)
		all, err := b.entries(ctx)
		again := time.Since(marked) >= evictAgain
		if again {
			marked = time.Now()
		}
		left = slices.DeleteFunc(left, func(e locks.Entry) bool {
			limit := cmp.Or(2*e.TTL, goneLimit)
			there := err != nil || slices.ContainsFunc(all, func(o locks.Entry) bool { return o.Ref == e.Ref })
			why := err
			if there && again && err == nil {
				why = b.mark(ctx, e.Ref, max(limit-time.Since(began), evictAgain))
				there = !errors.Is(why, locks.ErrLost)
			}
			switch {
			case !there:
				b.out.Step("gone", "id", e.Ref.String())
				b.gone += fmt.Sprintf("evicted from %q, %s: %s\n", locks.Printable(e.Name, term.NameLimit), e.State, e.Holder())
				return true
			case time.Since(began) < limit:
				return false
			}
			problem := fmt.Errorf("%q: %s is still there %v after its eviction", e.Name, e.Holder(), limit)
			if why != nil {
				problem = fmt.Errorf("%w: %w", problem, why)
			}
			failed = append(failed, problem)
			return true
		})
	}
	return failed
}
