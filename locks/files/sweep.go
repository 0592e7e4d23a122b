package files

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"time"

	"golock/locks"
	"golock/locks/lease"
	"golock/locks/queue"
)

// sweepPause is the least time between two rounds of a sweep.
const sweepPause = 100 * time.Millisecond

// sweepShare limits the load: the pause after a round is at least this multiple of the time of the round.
const sweepShare = 3

// sweepLimit limits the time of a sweep. A sweep leaves notes, so a later sweep knows since when a heartbeat
// has not changed.
const sweepLimit = 2 * lease.DefaultTTL

// Sweep implements locks.Queue. It works in rounds until it knows of each entry whether it is dead: that
// takes as long as the longest TTL of the entries whose heartbeat does not change, but not longer than
// sweepLimit. If it cannot read or remove something, it goes on with the rest.
func (s *Store) Sweep(ctx context.Context, name string, olderThan time.Duration) (removed int, err error) {
	directories, unread := lease.Await(ctx, func() ([]*directory, error) { return s.directories(name) })
	begin := s.clock()
	end := begin.Add(sweepLimit)
	times := map[*directory]time.Time{} // when the sweep began, on the clock of the file system
	if olderThan > 0 {
		var denied error
		times, denied = s.fileTimes(ctx, directories)
		unread = errors.Join(unread, denied)
		directories = slices.DeleteFunc(directories, func(d *directory) bool { return times[d].IsZero() })
	}
	isYoung := func(d *directory, o *observedEntry) bool {
		return olderThan > 0 && d.unusedFor(o.member, times[d].Add(s.clock().Sub(begin))) < olderThan
	}
	for {
		roundBegin := s.clock()
		r := s.sweepRound(ctx, directories, end, isYoung)
		removed += r.removed
		isOver := r.unknown == 0 || s.clock() >= end
		if !isOver {
			pause := max(sweepPause, sweepShare*s.clock().Sub(roundBegin))
			lease.Pause(ctx, min(pause, end.Sub(s.clock())))
		}
		if isOver || ctx.Err() != nil {
			for d, state := range r.states {
				d.writeNotes(state)
			}
			return removed, errors.Join(append([]error{unread, ctx.Err()}, r.failed...)...)
		}
	}
}

// round is the result of one round of a sweep.
type round struct {
	removed int
	unknown int // entries that may be alive or dead
	failed  []error
	states  map[*directory]*state
}

// sweepRound sweeps each of the directories once.
func (s *Store) sweepRound(
	ctx context.Context, directories []*directory, end locks.Instant, isYoung func(*directory, *observedEntry) bool,
) round {
	all := round{states: map[*directory]*state{}}
	for _, d := range directories {
		isYoungHere := func(o *observedEntry) bool { return isYoung(d, o) }
		r, err := lease.Await(ctx, func() (swept, error) { return d.sweep(ctx, end, isYoungHere) })
		all.removed += r.removed
		all.unknown += r.unknown
		if err != nil {
			all.failed = append(all.failed, lease.Located(s.URL(), err))
		}
		all.states[d] = r.state
	}
	return all
}

// fileTimes returns the time on the clock of the file system for each directory. A directory in which
// golock cannot write is missing in the result, and its error is joined: the age of its entries cannot be
// known.
func (s *Store) fileTimes(ctx context.Context, directories []*directory) (map[*directory]time.Time, error) {
	times := map[*directory]time.Time{}
	var failed []error
	for _, d := range directories {
		now, err := lease.Await(ctx, d.fileTime)
		if err != nil {
			failed = append(failed, lease.Located(s.URL(), err))
			continue
		}
		times[d] = now
	}
	return times, locks.JoinSome(failed)
}

// swept is the result of one round in a directory.
type swept struct {
	removed int
	unknown int // entries that may be alive or dead
	state   *state
}

// sweep removes dead entries, and the records of dead entries that are in no state: killed processes
// leave them. Others may have made any number of records, so sweep stops at end. It keeps entries that isYoung
// accepts.
func (d *directory) sweep(ctx context.Context, end locks.Instant, isYoung func(*observedEntry) bool) (s swept, err error) {
	records, err := readNames(d.path + "/" + recordsDir) // before the state: a later record may belong to a newcomer
	var r result
	if err == nil {
		r, err = (&step{directory: d, question: queue.Question{Step: queue.Look}, keep: isYoung}).decide(ctx)
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errRemoved) {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	s.removed = len(r.removed)
	s.state = r.state
	failed := []error{lease.Invalid(d.invalid(r.state, r.dead))}
	countUnknown := func(o *observedEntry) {
		isKnown := o.isDead || o.isAlive || o.holdLeft > 0
		if !isKnown && !isYoung(o) {
			s.unknown++
		}
	}
	for _, o := range r.observed {
		countUnknown(o)
	}
	inState := r.state.records()
	for _, name := range records {
		if ctx.Err() != nil || d.store.clock() >= end {
			break
		}
		id, life, _ := strings.Cut(name, "-")
		n, err := strconv.ParseInt(life, 10, 64)
		m := &member{Entry: queue.Entry{ID: id, State: queue.Waiting}, life: n}
		if err != nil || !isID(id) || m.record() != name || inState[name] {
			continue
		}
		o, err := d.observe(m, notForListing)
		if err == nil && o.isDead && !isYoung(o) {
			err = d.removeRecord(name)
			if err == nil {
				s.removed++
			}
		}
		if err != nil {
			failed = append(failed, err)
			continue
		}
		countUnknown(o)
	}
	return s, locks.JoinSome(failed)
}
