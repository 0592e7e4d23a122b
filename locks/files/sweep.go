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

// sweepPause is how long a sweep waits until it looks again.
const sweepPause = 100 * time.Millisecond

// sweepShare limits the work: a sweep pauses for this multiple of the time that it has looked.
const sweepShare = 3

// sweepLimit bounds a sweep. What it has seen is noted: a later one knows since when a heartbeat has
// not changed.
const sweepLimit = 2 * lease.DefaultTTL

// Sweep implements locks.Queue. It takes as long as the longest TTL of the entries
// whose heartbeat does not change, but not longer than sweepLimit: only that tells the dead from the
// living. What cannot be read or removed hides nothing else.
func (s *Store) Sweep(ctx context.Context, name string, olderThan time.Duration) (removed int, err error) {
	directories, unread := lease.Await(ctx, func() ([]*directory, error) { return s.directories(name) })
	began := s.clock()
	end := began.Add(sweepLimit)
	times := map[*directory]time.Time{} // by the clock of the file system
	if olderThan > 0 {
		var denied error
		times, denied = s.fileTimes(ctx, directories)
		unread = errors.Join(unread, denied)
		directories = slices.DeleteFunc(directories, func(d *directory) bool { return times[d].IsZero() })
	}
	for {
		round := s.clock()
		unknown, failed, states := 0, map[string]error{}, map[*directory]*state{}
		for _, d := range directories {
			isYoung := func(o *observedEntry) bool {
				return olderThan > 0 && d.unusedFor(o.member, times[d].Add(s.clock().Sub(began))) < olderThan
			}
			r, err := lease.Await(ctx, func() (swept, error) { return d.sweep(ctx, end, isYoung) })
			removed += r.removed
			unknown += r.unknown
			if err != nil {
				failed[d.path] = lease.Located(s.URL(), err)
			}
			states[d] = r.state
		}
		isOver := unknown == 0 || s.clock() >= end
		if !isOver {
			pause := max(sweepPause, sweepShare*s.clock().Sub(round))
			lease.Pause(ctx, min(pause, end.Sub(s.clock())))
		}
		if isOver || ctx.Err() != nil {
			all := []error{unread, ctx.Err()}
			for _, d := range directories {
				d.writeNotes(states[d])
				all = append(all, failed[d.path])
			}
			return removed, errors.Join(all...)
		}
	}
}

// fileTimes gives the time of the file system of each directory. Errors are of those where golock
// cannot write: nobody knows the age of what they contain.
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

// swept is what one round has found in a directory.
type swept struct {
	removed int
	unknown int // entries that may be alive or dead
	state   *state
}

// sweep removes the dead, also the records that are in no state: those of killed processes. Others
// may have made any number of records: after end it leaves the rest.
func (d *directory) sweep(ctx context.Context, end locks.Instant, isYoung func(*observedEntry) bool) (s swept, err error) {
	records, err := readNames(d.path + "/" + recordsDir) // before the state
	var r result
	if err == nil {
		r, err = (&step{directory: d, question: queue.Question{Step: queue.Look}, keep: isYoung}).decide(ctx)
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errRemoved) {
		return s, nil
	} else if err != nil {
		return s, err
	}
	s.removed = len(r.removed)
	s.state = r.state
	failed := []error{lease.Invalid(d.invalid(r.state, r.dead))}
	note := func(o *observedEntry) {
		if !o.isDead && o.holdLeft == 0 && !o.isAlive && !isYoung(o) {
			s.unknown++
		}
	}
	for _, o := range r.observed {
		note(o)
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
		o, err := d.observe(m, false)
		if err == nil && o.isDead && !isYoung(o) {
			if err = d.removeRecord(name); err == nil {
				s.removed++
			}
		}
		if err != nil {
			failed = append(failed, err)
			continue
		}
		note(o)
	}
	return s, locks.JoinSome(failed)
}
