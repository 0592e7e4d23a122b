package files

import (
	"context"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks"
	"golock/locks/lease"
)

// Evict implements locks.QueueStore. Its owner sees the mark within a second, or
// with its next renewal.
func (s *Store) Evict(ctx context.Context, ref locks.Ref, by string) error {
	if by == "" {
		by = "somebody"
	}
	_, err := await(ctx, func() (struct{}, error) {
		q := &queue{store: s, key: ref.Key, path: s.keyPath(ref.Key)}
		tokens, err := q.find(ref)
		if errors.Is(err, fs.ErrNotExist) {
			if err := s.checkDir(); err != nil {
				return struct{}{}, err
			}
			return struct{}{}, locks.ErrLost
		}
		if err == nil && len(tokens) == 0 {
			err = locks.ErrLost
		}
		for _, t := range tokens {
			if err != nil {
				break
			}
			if _, rec, unread := q.readRecord(t.id); unread == nil && rec.Left {
				_, over := q.evictedBy(t.id)
				var removed bool
				if removed, err = q.remove(t); removed {
					err = nil // what is left of it counts for nothing
				}
				if err == nil && over { // only nobody has removed it yet
					err = locks.ErrLost
				}
				continue
			}
			err = q.evict(t, locks.Printable(by, 200))
		}
		return struct{}{}, err
	})
	return err
}

// sweepPause is how long a sweep waits until it looks again.
const sweepPause = 100 * time.Millisecond

// Sweep implements locks.QueueStore. It takes as long as the longest TTL of what
// gives no sign of life: only that tells the dead from the living. The age is
// what an entry says of itself.
func (s *Store) Sweep(ctx context.Context, name string, olderThan time.Duration) (removed int, err error) {
	queues, unread := await(ctx, s.queues)
	if len(queues) == 0 && unread != nil {
		return 0, unread
	}
	var sweeps []*sweep
	for _, q := range queues {
		if name != "" && q.name != name {
			continue
		}
		sweeps = append(sweeps, &sweep{watch: q.watch(lease.DefaultTTL), olderThan: olderThan})
	}
	n := 0
	if name == "" {
		removed, err = await(ctx, func() (int, error) { return s.sweepUnfinished(ctx) })
	}
	for err == nil {
		left := 0
		for _, w := range sweeps {
			n, err = await(ctx, w.round)
			removed += n
			if err != nil {
				return removed, err
			}
			left += w.left
		}
		if left == 0 {
			return removed, unread
		}
		lease.Pause(ctx, sweepPause)
		err = ctx.Err()
	}
	return removed, err
}

// makingTime is what the making of a directory may take before a sweep takes it
// for left behind.
const makingTime = time.Second

// sweepUnfinished removes directories of names that were never finished. A slow
// maker may still give one its final name at any moment, and others use it from then
// on: so it is renamed before anything in it is removed. Its maker begins again.
func (s *Store) sweepUnfinished(ctx context.Context) (removed int, err error) {
	names, err := readNames(s.dir + "/.")
	if err != nil {
		return 0, err
	}
	isOther := func(name string) bool { return !isUnfinished(name, newPrefix) && !isUnfinished(name, oldPrefix) }
	if names = slices.DeleteFunc(names, isOther); len(names) == 0 {
		return 0, nil
	}
	lease.Pause(ctx, makingTime)
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return removed, err
		}
		old := s.dir + "/" + oldPrefix + name[len(newPrefix):]
		if isUnfinished(name, newPrefix) {
			if err := rename(s.dir+"/"+name, old); err == unix.ENOENT {
				continue // it is finished
			} else if err != nil {
				return removed, &locks.PathError{Op: "rename", Path: s.dir + "/" + name, Err: err}
			}
		}
		if err := os.RemoveAll(old); err != nil {
			return removed, err
		}
		removed++
	}
	return removed, nil
}

// isUnfinished reports whether a name in the store's directory is that of one
// which was being made: a prefix, and a key and an ID, or the ID alone.
func isUnfinished(name, prefix string) bool {
	text, ok := strings.CutPrefix(name, prefix)
	if len(text) == 65 && text[32] == '.' {
		text = text[:32] + text[33:]
	}
	_, err := hex.DecodeString(text)
	return ok && err == nil && (len(text) == 32 || len(text) == 64)
}

// sweep looks after one name.
type sweep struct {
	*watch
	olderThan time.Duration
	left      int // of how many it is not known yet whether they live
}

func (w *sweep) round() (removed int, err error) {
	q := w.queue
	w.left = 0
	data, err := readNames(q.path + "/" + recordsDir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	q.store.at("sweep line")
	line, err := q.list()
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	q.store.at("sweep records")
	owned := map[string]bool{}
	for _, t := range line {
		owned[t.id] = true
		if t.kind == goes { // whoever removes it, it comes to the same
			if ok, err := q.remove(t); err != nil {
				return removed, err
			} else if ok {
				removed++
			}
			continue
		}
		if w.alive(t) {
			continue
		}
		s, err := w.look(t)
		switch {
		case err != nil:
			return removed, err
		case s.absent, s.record.Since != 0 && time.Since(time.UnixMicro(s.record.Since)) < w.olderThan:
		case s.dead:
			ok, err := q.remove(t)
			if ok {
				removed++
			}
			if err != nil {
				return removed, err
			}
		case !w.alive(t) && s.rest == 0:
			w.left++
		}
	}
	n, err := w.removeAlone(data, owned)
	return removed + n, err
}

// removeAlone removes the records whose token is gone. A record is made after its
// token and goes before it. That a listing has no token is not enough: it may miss
// one that is being renamed.
func (w *sweep) removeAlone(data []string, owned map[string]bool) (removed int, err error) {
	q := w.queue
	for _, id := range data {
		t := token{kind: isNew, id: id}
		if _, ok := parseToken(t.String()); !ok || owned[id] || w.alive(t) {
			continue
		}
		s, err := w.look(t)
		switch {
		case err != nil:
			return removed, err
		case s.absent:
		case !s.dead:
			if !w.alive(t) {
				w.left++
			}
		default:
			// What is dead is not renamed any more, but it was when the line was
			// listed, perhaps; and of a holder more counts than its process.
			line, err := q.list()
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return removed, err
			}
			if slices.ContainsFunc(line, func(o token) bool { return o.id == id }) {
				continue
			}
			if err := os.RemoveAll(q.dataPath(id)); err != nil {
				return removed, err
			}
			removed++
		}
	}
	return removed, nil
}
