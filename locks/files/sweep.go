package files

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"golock/locks/lease"
	"golock/locks/queue"
)

// sweepPause is how long a sweep waits until it looks again.
const sweepPause = 100 * time.Millisecond

// Sweep implements locks.QueueStore. It takes as long as the longest TTL of the entries
// whose heartbeat does not change: only that tells the dead from the living. The age is
// what an entry says of itself.
func (s *Store) Sweep(ctx context.Context, name string, olderThan time.Duration) (removed int, err error) {
	directories, unread := lease.Await(ctx, func() ([]*directory, error) { return s.directories(name) })
	isYoung := func(o *observedEntry) bool {
		return o.record.Since != 0 && time.Since(time.UnixMicro(o.record.Since)) < olderThan
	}
	for {
		unknown := 0
		for _, d := range directories {
			r, err := lease.Await(ctx, func() (swept, error) { return d.sweep(ctx, isYoung) })
			removed += r.removed
			if err != nil {
				return removed, err
			}
			unknown += r.unknown
		}
		if unknown == 0 {
			return removed, unread
		}
		if lease.Pause(ctx, sweepPause); ctx.Err() != nil {
			return removed, ctx.Err()
		}
	}
}

// swept is what one round has found in a directory.
type swept struct {
	removed int
	unknown int // entries that may be alive or dead
}

// sweep removes the dead, also the records that are in no state: those of killed processes.
func (d *directory) sweep(ctx context.Context, isYoung func(*observedEntry) bool) (s swept, err error) {
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
	all := slices.Collect(maps.Values(r.observed))
	for _, name := range records {
		id, life, _ := strings.Cut(name, "-")
		n, err := strconv.ParseInt(life, 10, 64)
		m := &member{Entry: queue.Entry{ID: id, State: queue.Waiting}, life: n}
		if err != nil || !isID(id) || m.record() != name || r.state.has(name) {
			continue
		}
		o, err := d.observe(m, false)
		if err == nil && o.dead && !isYoung(o) {
			if err = d.removeRecord(name); err == nil {
				s.removed++
			}
		}
		if err != nil {
			return s, err
		}
		all = append(all, o)
	}
	for _, o := range all {
		if !o.dead && o.holdLeft == 0 && !o.alive && !isYoung(o) {
			s.unknown++
		}
	}
	return s, nil
}
