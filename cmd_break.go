package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strconv"
	"time"

	"golock/config"
	"golock/locks"
)

// breakCommand is the grammar of golock break.
type breakCommand struct {
	Name      *word
	ID        *word `name:"id"`
	OlderThan *word
	Dead      toggle
	All       toggle
	Store     *word
	Config    *word

	Verbose   toggle `short:"v"`
	Quiet     toggle `short:"q"`
	LogFormat *word
}

// goneWithin is how long an entry of a store without leases may take to go. On
// one with leases it is twice its TTL.
const goneWithin = 30 * time.Second

// How often is looked whether an entry has gone, and how often one that has not
// is told again: a store may have forgotten it, or a new process may keep the
// slot of one that was ended.
const (
	firstLook = 5 * time.Millisecond
	lastLook  = 200 * time.Millisecond
	tellAgain = time.Second
)

// evictLimit bounds how long a store is tried that does not answer.
const evictLimit = 10 * time.Second

var (
	errBreakWhat = errors.New("missing --name or --id: what is to be broken? See golock break --help")
	errBreakBoth = errors.New("--name and --id cannot be combined: an ID names its lock")
	errBreakAll  = errors.New("--id and --all cannot be combined: an ID is that of one entry")
)

func (c *breakCommand) run(out *printer) int {
	if err := c.evict(out); err != nil {
		return out.exit(err)
	}
	return 0
}

func (c *breakCommand) evict(out *printer) error {
	given := flags{}
	given.text("name", c.Name)
	given.text("store", c.Store)
	given.text("config", c.Config)
	given.text("older-than", c.OlderThan)
	given.toggle("dead", c.Dead)
	given.toggle("all", c.All)
	given.toggle("verbose", c.Verbose)
	given.toggle("quiet", c.Quiet)
	given.text("log-format", c.LogFormat)
	// What is broken is never left to a variable that was set for run.
	v, err := given.resolveWithout("GOLOCK_NAME")
	if err != nil {
		return err
	}
	if err := out.logging(v); err != nil {
		return err
	}
	b := &breaking{out: out, by: whoBreaks()}
	if err := c.choose(v, b); err != nil {
		return err
	}
	store, err := storeOf(v)
	if err != nil {
		return err
	}
	defer store.Close()
	evicter, ok := store.(locks.Evicter)
	if !ok {
		return v.Errorf("store", "%s cannot take a slot back: end the process that has it", store.URL())
	}
	b.store = evicter
	return b.do(context.Background())
}

// choose reads what is to be broken.
func (c *breakCommand) choose(v *config.Values, b *breaking) (err error) {
	switch {
	case c.Name == nil && c.ID == nil:
		return usageError{errBreakWhat}
	case c.Name != nil && c.ID != nil:
		return usageError{errBreakBoth}
	case c.Name != nil:
		b.name = string(*c.Name)
		if err := locks.CheckName(b.name); err != nil {
			return v.Errorf(config.NameKey, "%v", err)
		}
	default:
		if b.ref, err = locks.ParseRef(string(*c.ID)); err != nil {
			return usageError{fmt.Errorf("--id: %w", err)}
		}
	}
	if err := bools(v, map[string]*bool{"dead": &b.dead, "all": &b.all}); err != nil {
		return err
	}
	if b.all && c.ID != nil {
		return usageError{errBreakAll}
	}
	b.olderThan, err = v.Duration("older-than", 0)
	return err
}

// whoBreaks is what those who are evicted are told.
func whoBreaks() string {
	who := "uid " + strconv.Itoa(os.Geteuid())
	if u, err := user.LookupId(strconv.Itoa(os.Geteuid())); err == nil {
		who = "user " + u.Username
	}
	host, _ := os.Hostname()
	return fmt.Sprintf("%s (golock break, pid %d on %s)", who, os.Getpid(), host)
}

// breaking is one run of golock break.
type breaking struct {
	store locks.Evicter
	out   *printer
	by    string

	name      string    // "": ref
	ref       locks.Ref // the one entry
	found     string    // the name that it was found under
	dead      bool      // only what no golock holds
	all       bool      // waiters too
	olderThan time.Duration
}

// wants reports whether an entry is to be broken.
func (b *breaking) wants(e locks.Entry) bool {
	switch {
	case b.name == "" && e.Ref != b.ref:
	case b.name != "" && e.State == locks.Waiting && !b.all:
	case b.dead && !e.Orphaned && !e.Ended:
	case b.olderThan > 0 && time.Since(e.Since) < b.olderThan:
	default:
		return true
	}
	return false
}

// entries lists what there is under the name, or with the ID. Once that is
// found, it does not matter what is the matter with other names.
func (b *breaking) entries(ctx context.Context) (all []locks.Entry, err error) {
	for e, err := range b.store.Entries(ctx, cmp.Or(b.name, b.found)) {
		if err != nil {
			return all, err
		}
		if b.name != "" {
			all = append(all, e)
		} else if e.Ref == b.ref {
			b.found = e.Name
			return []locks.Entry{e}, nil
		}
	}
	return all, nil
}

func (b *breaking) do(ctx context.Context) error {
	there, err := b.entries(ctx)
	var outage *locks.OutageError
	if len(there) == 0 && b.name == "" && !errors.As(err, &outage) {
		// It may be on no list: the store has many, or one of them cannot be read.
		if err := b.tell(ctx, b.ref, evictLimit); err != nil {
			return unknownID(b.ref, err)
		}
		there = []locks.Entry{{Ref: b.ref, State: locks.Holding}}
	} else if err != nil {
		return err
	}
	var failed []error
	var left []locks.Entry
	for _, e := range there {
		if !b.wants(e) {
			continue
		}
		err := b.tell(ctx, e.Ref, evictLimit)
		switch {
		case errors.Is(err, locks.ErrLost): // it has just gone
		case err != nil:
			failed = append(failed, fmt.Errorf("%q: %w", e.Name, err))
		default:
			b.out.step("told to go", "id", e.Ref.String(), "state", string(e.State), "pid", e.PID, "host", e.Host)
			left = append(left, e)
		}
	}
	return errors.Join(append(failed, b.await(ctx, left)...)...)
}

// tell tells an entry to go. A store that does not answer is tried again until
// limit is over.
func (b *breaking) tell(ctx context.Context, ref locks.Ref, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return b.store.Evict(ctx, ref, b.by)
}

func unknownID(ref locks.Ref, err error) error {
	if errors.Is(err, locks.ErrLost) {
		return fmt.Errorf("nothing has the ID %s: %w", ref, locks.ErrLost)
	}
	return err
}

// await returns when the entries have gone, with an error for each that has not
// in its time.
func (b *breaking) await(ctx context.Context, left []locks.Entry) (failed []error) {
	began, told := time.Now(), time.Now()
	for look := firstLook; len(left) > 0; look = min(2*look, lastLook) {
		time.Sleep(look)
		there, err := b.entries(ctx)
		again := time.Since(told) >= tellAgain
		if again {
			told = time.Now()
		}
		left = slices.DeleteFunc(left, func(e locks.Entry) bool {
			limit := goneWithin
			switch {
			case e.TTL > 0:
				limit = 2 * e.TTL
			case b.store.Traits().Leased:
				limit = 2 * defaultTTL
			}
			known := slices.ContainsFunc(there, func(o locks.Entry) bool { return o.Ref == e.Ref })
			missed := err
			if known && again || !known && e.Name == "" { // an entry on no list can only be asked for so
				missed = b.tell(ctx, e.Ref, max(limit-time.Since(began), tellAgain))
				known = !errors.Is(missed, locks.ErrLost)
			}
			switch {
			case !known && (err == nil || errors.Is(missed, locks.ErrLost)):
				b.out.step("gone", "id", e.Ref.String())
				return true
			case time.Since(began) < limit:
				return false
			}
			problem := fmt.Errorf("%q: %s is still there %v after it was told to go", e.Name, e.Holder(), limit)
			if missed != nil && !errors.Is(missed, locks.ErrLost) {
				problem = fmt.Errorf("%w: %w", problem, missed)
			}
			failed = append(failed, problem)
			return true
		})
	}
	return failed
}
