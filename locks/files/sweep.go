package files

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
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
	if len(directories) == 0 && unread != nil {
		return 0, unread
	}
	var sweeps []*sweep
	for _, d := range directories {
		sweeps = append(sweeps, &sweep{directory: d, olderThan: olderThan})
	}
	for {
		unknown := 0
		for _, w := range sweeps {
			n, err := lease.Await(ctx, func() (int, error) { return w.round(ctx) })
			removed += n
			if err != nil {
				return removed, err
			}
			unknown += w.unknown
		}
		if unknown == 0 {
			return removed, unread
		}
		if lease.Pause(ctx, sweepPause); ctx.Err() != nil {
			return removed, ctx.Err()
		}
	}
}

// sweep removes the dead of one name.
type sweep struct {
	*directory
	olderThan time.Duration
	unknown   int // entries that may be alive or dead
}

func (w *sweep) round(ctx context.Context) (removed int, err error) {
	w.unknown = 0
	records, err := readNames(w.path + "/" + recordsDir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	p := &step{directory: w.directory, question: queue.Question{Step: queue.Look}, keep: w.isYoung}
	r, err := p.decide(ctx)
	if errors.Is(err, errRemoved) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	for _, o := range r.observed {
		if !o.dead && o.holdLeft == 0 && o.ttlLeft > 0 && !w.isAlive(o.member.record()) && !w.isYoung(o) {
			w.unknown++
		}
	}
	n, err := w.removeUnreferenced(records, r.state)
	return len(r.removed) + n, err
}

func (w *sweep) isYoung(o *observedEntry) bool {
	return o.record.Since != 0 && time.Since(time.UnixMicro(o.record.Since)) < w.olderThan
}

// removeUnreferenced removes dead records that are in no state: those of killed processes. The
// records were listed before the state was read.
func (w *sweep) removeUnreferenced(records []string, s *state) (removed int, err error) {
	for _, name := range records {
		id, life, _ := strings.Cut(name, "-")
		n, err := strconv.ParseInt(life, 10, 64)
		m := &member{Entry: queue.Entry{ID: id, State: queue.Waiting}, life: n}
		if err != nil || !isID(id) || m.record() != name || s.has(name) || w.isAlive(name) {
			continue
		}
		_, rec, _ := w.readRecord(name)
		m.ttl = cmp.Or(max(rec.TTL, 0), lease.DefaultTTL)
		o, err := w.observe(m, false)
		switch {
		case err != nil:
			return removed, err
		case w.isYoung(o):
		case !o.dead:
			w.unknown++ // until its heartbeat changes
		default:
			if err := w.removeRecord(name); err != nil {
				return removed, err
			}
			removed++
		}
	}
	return removed, nil
}
