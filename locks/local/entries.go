package local

import (
	"context"
	"errors"
	"iter"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks"
)

// Entries implements locks.Store. It changes nothing, not even a missing
// directory.
func (s *Store) Entries(ctx context.Context, name string) iter.Seq2[locks.Entry, error] {
	return func(yield func(locks.Entry, error) bool) {
		d, err := openDirectory(s.path, s.roots, false)
		if err != nil {
			yield(locks.Entry{}, err)
			return
		}
		if d.readOnly {
			return
		}
		defer unix.Close(d.fd)
		var tables []*table
		if name != "" {
			tables, err = d.snapshot(ctx, fileName(name), tables)
		} else {
			tables, err = d.snapshots(ctx)
		}
		for _, tab := range tables {
			for _, e := range s.list(tab) {
				if !yield(e, nil) {
					return
				}
			}
		}
		if err != nil {
			yield(locks.Entry{}, err)
		}
	}
}

// snapshots reads every lock file of the directory, in the order of the names.
// One that cannot be read hides none of the others.
func (d *directory) snapshots(ctx context.Context) ([]*table, error) {
	files, err := os.ReadDir(d.path)
	if err != nil {
		return nil, &Error{Op: "read directory", Path: d.path, Err: err.(*os.PathError).Err}
	}
	var tables []*table
	var failed []error
	visit := newVisit(ctx)
	defer visit.end()
	for _, f := range files {
		if isLockFile(f.Name()) {
			err := visit.to(d.path+"/"+f.Name(), func(ctx context.Context) (err error) {
				tables, err = d.snapshot(ctx, f.Name(), tables)
				return err
			})
			if err != nil {
				failed = append(failed, err)
			}
		}
	}
	slices.SortFunc(tables, func(a, b *table) int {
		switch {
		case a.name < b.name:
			return -1
		case a.name > b.name:
			return 1
		}
		return 0
	})
	return tables, errors.Join(failed...)
}

// snapshot appends the table of one file, with only the live records in it.
func (d *directory) snapshot(ctx context.Context, base string, tables []*table) ([]*table, error) {
	f, err := d.open(base, unix.O_RDONLY)
	if err != nil || f == nil {
		return tables, err
	}
	defer f.close()
	if err := f.gate(ctx, unix.F_RDLCK, gateLimit); err != nil {
		return tables, err
	}
	defer f.openGate()
	tab, err := f.read()
	if err == errCorrupt {
		used, err := writeLocked(f.fd, waitBase, pathBase-waitBase)
		switch {
		case err != nil:
			return tables, f.lockError(err)
		case !used:
			return tables, nil // the next user repairs it
		}
		return tables, &Error{Path: f.path, Err: errDamaged}
	}
	if err != nil || !tab.belongs(base) {
		return tables, err
	}
	live := tab.records[:0]
	for _, r := range tab.records {
		locked, err := writeLocked(f.fd, r.lockByte(), 1)
		if err != nil {
			return tables, f.lockError(err)
		}
		r.ended = !locked && r.stays()
		if locked || r.ended {
			if r.words, err = f.readCommand(&r); err != nil {
				return tables, &Error{Path: f.path, Err: err}
			}
			live = append(live, r)
		}
	}
	tab.records = live
	return append(tables, tab), nil
}

// list turns a table of live records into entries: holders by slot, then
// waiters in the order of the queue.
func (s *Store) list(tab *table) []locks.Entry {
	slices.SortFunc(tab.records, func(a, b record) int {
		switch {
		case a.state != b.state:
			return int(b.state) - int(a.state)
		case a.state == stateHolding:
			return int(a.slots[0].first) - int(b.slots[0].first)
		case a.claim.Before(b.claim):
			return -1
		default:
			return 1
		}
	})
	entries := make([]locks.Entry, 0, len(tab.records))
	position := 0
	for i := range tab.records {
		e := s.entry(tab.name, &tab.records[i])
		if e.State == locks.Waiting {
			position++
			e.Position = position
		}
		entries = append(entries, e)
	}
	return entries
}

// entry describes one live record.
func (s *Store) entry(name string, r *record) locks.Entry {
	host, _ := os.Hostname()
	e := locks.Entry{
		Name: name, Ref: locks.Ref{Key: locks.KeyOf(name), ID: r.id}, State: locks.Waiting, Claim: r.claim,
		Host: host, PID: r.pid, UID: r.uid, Command: r.words, Since: r.sinceTime(), Evicted: r.evictor,
	}
	if r.state == stateHolding {
		e.State, e.Slots, e.Fence = locks.Holding, r.slotList(), r.fence
		e.Ended, e.Orphaned = r.ended, !r.ended && r.isOrphan()
		if r.stays() {
			e.HeldTill = time.Now().Add(r.left())
		}
	}
	return e
}

// busy tells who is in the way.
func (s *Store) busy(f *lockFile, tab *table, do decision) *locks.BusyError {
	busy := &locks.BusyError{Name: tab.name}
	for i := range do.holders {
		do.holders[i].words, _ = f.readCommand(&do.holders[i])
		busy.Holders = append(busy.Holders, s.entry(tab.name, &do.holders[i]))
	}
	for _, r := range tab.records {
		if r.state != stateWaiting || r.evictor != "" {
			continue
		}
		if live, _ := writeLocked(f.fd, waitByte(r.claim.Ticket), 1); live {
			busy.Waiters++
		}
	}
	if do.removed {
		busy.Reason = whyRemoved
	}
	return busy
}
