package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golock/cli/term"
	"golock/locks"
	"golock/signals"
)

type breakCommand struct {
	lockArgument
	idFlag
	OlderThan durationFlag `name:"older-than" brief:"" file:"no" placeholder:"D" help:"Select only entries that have held or waited for at least D."`
	Dead      boolFlag     `name:"dead" brief:"" help:"Evict only entries whose golock is gone: what a killed golock has left running, and what only --hold keeps."`
	All       boolFlag     `name:"all" brief:"" help:"Evict waiters too. Their exit code is 75."`
	DryRun    boolFlag     `name:"dry-run" brief:"" help:"Print who would be evicted, and evict nobody."`
	storeFlags
	logFlags
}

func (*breakCommand) Help() string {
	return `The golock of each holder stops its command, with its --signal, then with KILL after
its --kill-after or before its lease ends, and exits with 79. golock break returns when
the commands are dead and the slots are free. It ends a --hold at once, and kills what a
killed golock has left running. A slot of acquire --for none is free when its lease ends,
because there is no process to watch: golock break says so and waits. If you know that
the work has ended, golock release ID frees the slot at once.

Examples:
  golock break deploy
  golock break nightly --older-than 6h
  golock break nightly --dead
        only what a killed golock has left, and holds
  golock break --id $(golock ls --json deploy | jq -r '.[0].id')
  golock break deploy --all --dry-run

Exit codes:
  0 everything that was selected is gone, or nothing was selected; 79 no such ID;
  69 something could not be evicted (with --older-than also if its age is not known),
  or was not gone after 30 s (on a networked store after twice its --ttl). The eviction
  stays requested then, and nobody else gets the slot.`
}

// goneLimit limits how long an evicted entry without a lease may take to leave. An entry with a lease
// has twice its TTL for that.
const goneLimit = 30 * time.Second

// These constants say how often break looks whether an entry is gone, and how often it evicts the entry again.
// An eviction again helps if the store has forgotten the first one, or if the command has ended since and
// another process keeps its slot: each eviction ends the processes that keep the slot at that moment.
const (
	firstPause = 5 * time.Millisecond   // the pause before the first look; it doubles after each look
	lastPause  = 200 * time.Millisecond // the longest pause
	evictAgain = time.Second
)

// evictLimit limits the attempts on a store that does not answer, and markLimit the eviction of many
// entries one by one.
const (
	evictLimit = 10 * time.Second
	markLimit  = 20 * time.Second
)

func (c *breakCommand) run(out *term.Printer) error {
	signals.EndByDefault()
	v, store, err := resolveStore(c)
	if err != nil {
		return err
	}
	defer store.Close()
	olderThan := v.Duration("older-than")
	if err := configureLog(out, v); err != nil {
		return err
	}
	var ref locks.Ref
	switch {
	case c.Name.given() && c.ID.given():
		return usageError{errors.New("NAME and --id cannot be combined: an ID names its lock")}
	case c.ID.given() && c.All.on():
		return usageError{errors.New("--id and --all cannot be combined: an ID names one entry")}
	case c.ID.given():
		ref, err = locks.ParseRef(c.ID.text())
		if err != nil {
			return usageError{fmt.Errorf("--id: %w", err)}
		}
	case !c.Name.given():
		return usageError{errors.New("missing NAME or --id; see golock break --help")}
	}
	if store.IsPlain {
		return v.Errorf("store", "%s cannot take a slot back: end the process that has it", store.URL())
	}
	host, _ := os.Hostname()
	by := fmt.Sprintf("user %s (golock break, pid %d on %s)", term.UserName(os.Geteuid()), os.Getpid(), host)
	b := &eviction{breakCommand: c, ref: ref, olderThan: olderThan, store: store, queue: store.Can.Queue, out: out, by: by}
	err = b.evict()
	if b.report.Len() == 0 && err == nil {
		b.report.WriteString("nothing to evict\n")
	}
	if out.Quiet {
		return err
	}
	return errors.Join(err, printOut(b.report.String()))
}

// eviction is one call of golock break.
type eviction struct {
	*breakCommand
	ref       locks.Ref // the entry of --id; zero if a name was given
	olderThan time.Duration
	store     locks.KnownStore
	queue     locks.Queue // the queue of store
	out       *term.Printer
	by        string          // who evicts, as evicted runs print it
	report    strings.Builder // a line for each entry that was evicted, or would be
}

// wants reports whether the flags select an entry.
func (b *eviction) wants(e locks.Entry) bool {
	onlyWaits := b.Name.given() && e.State == locks.Waiting && !b.All.on()
	isAlive := b.Dead.on() && !e.Orphaned && !e.Ended
	isTooYoung := b.olderThan > 0 && e.HasAge && e.Age < b.olderThan
	return !onlyWaits && !isAlive && !isTooYoung
}

// refusal returns the error for an entry that break leaves alone, because it may be younger than
// --older-than.
func (b *eviction) refusal(e locks.Entry) error {
	if b.olderThan <= 0 || e.HasAge {
		return nil
	}
	return fmt.Errorf("%q: not evicted: the age of %s is not known here and may be less than --older-than; "+
		"golock break --id %s evicts it", e.Name, e.Who(60), e.Ref)
}

// entries lists the entries of the name, or the entry of the ID. It lists invalid entries too, and returns no error
// for them, because break can evict them.
func (b *eviction) entries() ([]locks.Entry, error) {
	all, err := b.list()
	if invalid := locks.AsInvalid(err); len(invalid) > 0 {
		return withInvalid(all, invalid), nil
	}
	return all, err
}

// list is entries for the valid entries. Its error names the invalid ones.
func (b *eviction) list() ([]locks.Entry, error) {
	if b.Name.given() {
		return b.store.Entries(context.Background(), b.Name.text())
	}
	ctx, cancel := context.WithTimeout(context.Background(), evictLimit) // a file system may hang
	defer cancel()
	e, err := b.queue.Find(ctx, b.ref)
	return []locks.Entry{e}, err
}

// evict evicts the entries that the flags select, and returns when they are gone.
func (b *eviction) evict() error {
	all, err := b.entries()
	switch {
	case errors.Is(err, locks.ErrLost):
		return fmt.Errorf("nothing has the ID %s: %w", b.ref, locks.ErrLost)
	case err != nil:
		return err
	}
	wanted, failed := b.selectFrom(all)
	if b.DryRun.on() {
		b.reportDryRun(wanted)
		return locks.JoinSome(failed)
	}
	evicted, failed := b.markAll(wanted, failed)
	return locks.JoinSome(append(failed, b.await(evicted)...))
}

// selectFrom returns the entries that the flags select, waiters first, so that no waiter is granted what a
// holder leaves. failed has an error for each entry that break refuses to evict.
func (b *eviction) selectFrom(all []locks.Entry) (wanted []locks.Entry, failed []error) {
	for _, e := range slices.Backward(all) {
		if e.Ref == (locks.Ref{}) || !b.wants(e) {
			continue
		}
		err := b.refusal(e)
		if err != nil {
			failed = append(failed, err)
			continue
		}
		wanted = append(wanted, e)
	}
	return wanted, failed
}

// reportDryRun writes what an eviction of the entries would do.
func (b *eviction) reportDryRun(wanted []locks.Entry) {
	for _, e := range slices.Backward(wanted) {
		if e.HasNoProcess() {
			fmt.Fprintf(&b.report, "would wait for the lease of %q, held by %s: %s\n", locks.Printable(e.Name, term.NameLimit), e.Holder(), releaseHint(e))
			continue
		}
		fmt.Fprintf(&b.report, "would evict from %q, %s: %s\n", locks.Printable(e.Name, term.NameLimit), e.State, e.Holder())
	}
}

// markAll marks the entries as evicted, and returns those that were marked. It adds its errors to failed.
func (b *eviction) markAll(wanted []locks.Entry, failed []error) ([]locks.Entry, []error) {
	began := time.Now()
	mark := b.marker(wanted)
	var evicted []locks.Entry
	for i, e := range wanted {
		if time.Since(began) > markLimit {
			failed = append([]error{fmt.Errorf("%q: %d of %d entries were not evicted in %v: repeat the command",
				e.Name, len(wanted)-i, len(wanted), markLimit)}, failed...)
			break
		}
		err := mark(i)
		switch {
		case errors.Is(err, locks.ErrLost): // the entry is gone already
		case err != nil:
			failed = append(failed, fmt.Errorf("%q: %w", e.Name, err))
		default:
			b.out.Step("evicted", "id", e.Ref.String(), "state", string(e.State), "pid", e.PID, "host", e.Host)
			evicted = append(evicted, e)
			if e.HasNoProcess() {
				b.out.Say(fmt.Sprintf("waiting for the end of the lease of %q, held by %s: %s", locks.Printable(e.Name, term.NameLimit), e.Holder(), releaseHint(e)))
			}
		}
	}
	return evicted, failed
}

// releaseHint says how to free a slot that no process keeps before its lease ends. golock cannot see whether
// the work has ended for which the slot was taken: only a user who knows that may free the slot.
func releaseHint(e locks.Entry) string {
	return fmt.Sprintf("if its work has ended, golock release %s frees it at once", e.Ref)
}

// withInvalid adds the invalid entries to the others. Invalid entries count as holders, because they may hold.
func withInvalid(all []locks.Entry, invalid []locks.InvalidEntry) []locks.Entry {
	for _, i := range invalid {
		all = append(all, locks.Entry{Name: i.Name, Ref: i.Ref, State: locks.Holding, TTL: i.TTL})
	}
	return all
}

// marker returns a function that marks the i-th entry as evicted and returns the result. If the store
// evicts many entries together, all are marked before marker returns.
func (b *eviction) marker(entries []locks.Entry) (mark func(i int) error) {
	if len(entries) == 0 || !b.store.Can.EvictsTogether {
		return func(i int) error { return b.mark(entries[i].Ref, evictLimit) }
	}
	refs := make([]locks.Ref, len(entries))
	for i := range entries {
		refs[i] = entries[i].Ref
	}
	ctx, cancel := context.WithTimeout(context.Background(), evictLimit)
	defer cancel()
	results := b.queue.Evict(ctx, refs, b.by)
	return func(i int) error { return results[i] }
}

// mark marks an entry as evicted. It repeats attempts on a store that does not
// answer until limit is over.
func (b *eviction) mark(ref locks.Ref, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return b.queue.Evict(ctx, []locks.Ref{ref}, b.by)[0]
}

// await returns when the entries are gone, with an error for each that stays too long.
func (b *eviction) await(evicted []locks.Entry) (failed []error) {
	began, marked := time.Now(), time.Now()
	pause, listTime := firstPause, time.Duration(0)
	for len(evicted) > 0 {
		time.Sleep(max(pause, listTime)) // a list of thousands of entries is work for the store
		pause = min(2*pause, lastPause)
		asked := time.Now()
		isListed, listErr := b.listed()
		listTime = time.Since(asked)
		marksAgain := time.Since(marked) >= evictAgain
		if marksAgain {
			marked = time.Now()
		}
		var remaining []locks.Entry
		for _, e := range evicted {
			limit := limitToLeave(e)
			var err error // ErrLost if the entry is gone
			switch {
			case !isListed[e.Ref] && listErr != nil:
				err = listErr
			case !isListed[e.Ref]:
				err = locks.ErrLost
			case marksAgain && time.Since(marked) < evictAgain: // a slow store gets no more marks in this look
				err = b.mark(e.Ref, max(limit-time.Since(began), evictAgain))
			}
			switch {
			case errors.Is(err, locks.ErrLost):
				b.out.Step("gone", "id", e.Ref.String())
				fmt.Fprintf(&b.report, "evicted from %q, %s: %s\n", locks.Printable(e.Name, term.NameLimit), e.State, e.Holder())
			case time.Since(began) < limit:
				remaining = append(remaining, e)
			default:
				failed = append(failed, stillThere(e, limit, err))
			}
		}
		evicted = remaining
	}
	return failed
}

// listed returns the set of the entries that the store has, as entries lists them.
func (b *eviction) listed() (isListed map[locks.Ref]bool, err error) {
	all, err := b.entries()
	isListed = make(map[locks.Ref]bool, len(all))
	for _, e := range all {
		isListed[e.Ref] = true
	}
	return isListed, err
}

// limitToLeave returns how long an evicted entry may take to leave.
func limitToLeave(e locks.Entry) time.Duration {
	if e.TTL > 0 {
		return 2 * e.TTL
	}
	return goneLimit
}

// stillThere returns the error for an entry that was not gone in time. err says why, if that is known.
func stillThere(e locks.Entry, limit time.Duration, err error) error {
	problem := fmt.Errorf("%q: %s is still there %v after its eviction", e.Name, e.Holder(), limit)
	if err != nil {
		return fmt.Errorf("%w: %w", problem, err)
	}
	return problem
}
