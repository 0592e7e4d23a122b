package files

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks"
	"golock/locks/lease"
	"golock/locks/queue"
)

// sweepPause is how long a sweep waits until it looks again.
const sweepPause = 100 * time.Millisecond

// Sweep implements locks.QueueStore. It takes as long as the longest TTL of what
// gives no sign of life: only that tells the dead from the living. The age is
// what an entry says of itself.
func (s *Store) Sweep(ctx context.Context, name string, olderThan time.Duration) (removed int, err error) {
	directories, unread := await(ctx, s.directories)
	if len(directories) == 0 && unread != nil {
		return 0, unread
	}
	var sweeps []*sweep
	for _, d := range directories {
		if name == "" || d.name == name {
			sweeps = append(sweeps, &sweep{watch: d.watch(), olderThan: olderThan})
		}
	}
	n := 0
	if name == "" {
		removed, err = await(ctx, func() (int, error) { return s.sweepUnfinished(ctx) })
	}
	for err == nil {
		open := 0
		for _, w := range sweeps {
			n, err = await(ctx, func() (int, error) { return w.round(ctx) })
			removed += n
			if err != nil {
				return removed, err
			}
			open += w.unknown
		}
		if open == 0 {
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
	unknown   int  // of how many it is not known yet whether they live
	tidied    bool // what interrupted steps have left is gone
}

// orphans are the files of a listing that were made for a version which was not made of
// them.
func (h *handle) orphans(l listing) (names []string) {
	for _, name := range l.names {
		if n, ok := versionOf(name, tempPrefix); ok {
			if target, err := h.readLink(versionName(n)); err != nil || target != name {
				names = append(names, name)
			}
		}
	}
	return names
}

// tidy makes a version, by which requests are let in and whoever is about to make it
// fails. Then nobody needs what was made for it and those before.
func (w *sweep) tidy(ctx context.Context, p *step) (r result, err error) {
	h, err := w.open()
	if err != nil {
		return r, err
	}
	defer h.close()
	l, err := h.list()
	if err != nil {
		return r, err
	}
	orphans := h.orphans(l)
	p.force = len(orphans) > 0 || slices.ContainsFunc(l.names, func(name string) bool { return strings.HasPrefix(name, requestPrefix) })
	if r, err = p.decide(ctx); err != nil {
		return r, err
	}
	for _, name := range h.orphans(listing{names: orphans}) {
		if n, _ := versionOf(name, tempPrefix); n <= r.version {
			h.remove(name)
		}
	}
	w.tidied = true
	return r, nil
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
	p := &step{watch: w.watch, question: queue.Question{Step: queue.Look}, foreign: true, thorough: true, spare: w.isYoung}
	do := p.decide
	if !w.tidied {
		do = func(ctx context.Context) (result, error) { return w.tidy(ctx, p) }
	}
	r, err := do(ctx)
	if errors.Is(err, errRemoved) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	for _, seen := range r.observed {
		if !seen.dead && seen.rest == 0 && seen.left > 0 && !w.alive(seen.member.record()) && !w.isYoung(seen) {
			w.unknown++
		}
	}
	n, err := w.removeAlone(records, r.state)
	return len(r.removed) + n, err
}

func (w *sweep) isYoung(s *observedEntry) bool {
	return s.record.Since != 0 && time.Since(time.UnixMicro(s.record.Since)) < w.olderThan
}

// removeAlone removes the records that were there before the state was read, and that
// it does not know: their owners were killed.
func (w *sweep) removeAlone(records []string, s *state) (removed int, err error) {
	for _, name := range records {
		id, life, _ := strings.Cut(name, "-")
		n, err := strconv.ParseInt(life, 10, 64)
		_, rec, _ := w.readRecord(name)
		m := &member{id: id, life: n, state: queue.Waiting, ttl: cmp.Or(max(rec.TTL, 0), lease.DefaultTTL)}
		if raw, isID := hex.DecodeString(id); isID != nil || len(raw) != 16 || err != nil || m.record() != name || s.has(name) || w.alive(name) {
			continue
		}
		seen, err := w.judge(m)
		switch {
		case err != nil:
			return removed, err
		case w.isYoung(seen):
		case !seen.dead:
			w.unknown++ // until it has given a sign of life
		default:
			if err := w.removeRecord(name); err != nil {
				return removed, err
			}
			removed++
		}
	}
	return removed, nil
}
