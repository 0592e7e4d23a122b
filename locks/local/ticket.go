package local

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks"
)

// ticket is one request, from Join to the grant. It sleeps until the entry in front of it
// has gone, and looks again.
type ticket struct {
	store    *Store
	request  locks.Request
	queued   bool
	place    *place
	ref      atomic.Pointer[recordRef] // Evicted is asked from another goroutine than Wait
	lease    *lease                    // once it is granted
	replaced []locks.Entry

	removed bool // the last look found the holders of a removed file in the way
}

var (
	// errMoved says that the lock file was removed or replaced: join again.
	errMoved = errors.New("the lock file was removed")

	// errDamaged says that the table cannot be read and is in use.
	errDamaged = errors.New("is damaged, and somebody holds or waits by it")
)

const (
	// maxMoves is how often in a row the file may be removed under a newcomer.
	maxMoves = 100

	// The first waiter looks this often: the kernel wakes nobody when a hold is evicted,
	// or when the holders of a removed file have gone.
	holdCheck    = time.Second
	removedCheck = time.Second
)

// Queued implements locks.Ticket.
func (t *ticket) Queued() bool { return t.queued }

// Replaced implements locks.Ticket.
func (t *ticket) Replaced() []locks.Entry { return t.replaced }

// Evicted implements locks.Ticket.
func (t *ticket) Evicted() error { return t.ref.Load().evicted() }

// join takes a place in the file that the path leads to now, and maybe the slot.
func (t *ticket) join(ctx context.Context) error {
	path := ""
	for range maxMoves {
		d, err := t.store.openForUse()
		if err != nil {
			return err
		}
		p := &place{dir: d, hold: -1, pathLocks: d.pathLocks(t.request.Name), freed: make(chan error, 1)}
		l, err := p.enter(ctx, t)
		for _, v := range p.victims {
			_ = v.end() // one that cannot be told is waited for
		}
		if err == nil {
			p.ref = recordRef{path: p.table.path, index: p.self.index, id: p.self.id}
			if t.ref.Store(&p.ref); l != nil {
				p.closeTable()
			}
			t.place, t.lease = p, l
			return nil
		}
		path = p.dir.path + "/" + fileName(t.request.Name)
		_ = p.close()
		if err != errMoved {
			return err
		}
	}
	return &locks.PathError{Path: path, Err: errors.New("something removes it all the time")}
}

// Wait implements locks.Ticket.
func (t *ticket) Wait(ctx context.Context) (locks.Lease, error) {
	if t.lease != nil {
		return t.lease, nil
	}
	err := t.wait(ctx)
	if err == nil {
		return t.lease, nil
	}
	_ = t.place.close()
	if ctx.Err() == nil {
		return nil, err
	}
	if evicted := t.Evicted(); evicted != nil {
		return nil, evicted
	}
	if t.removed {
		return nil, &locks.BusyError{Name: t.request.Name, Reason: whyRemoved}
	}
	return nil, ctx.Err()
}

// wait moves t forward in the queue until it holds. It begins with what it has seen when
// it joined: if that has gone since, the sleep ends at once.
func (t *ticket) wait(ctx context.Context) error {
	v := t.place.joined
	for {
		t.removed = v.removed
		err := t.place.sleep(ctx, v)
		if err == nil {
			v, err = t.look(ctx)
		}
		if err == errMoved {
			old := t.place
			if err = t.join(ctx); err == nil {
				_ = old.close()
				v = t.place.joined
			}
		}
		if err != nil || t.lease != nil {
			return err
		}
	}
}

// look looks once, inside the gate. Only one who holds alone leaves the queue later (Settle).
func (t *ticket) look(ctx context.Context) (v view, err error) {
	p := t.place
	if err := p.table.gate(ctx, unix.F_WRLCK, forever); err != nil {
		return v, err
	}
	v, t.lease, err = t.lookInside()
	p.table.openGate()
	if t.lease != nil && !t.lease.exclusive {
		t.lease.Settle()
	}
	return v, err
}

func (t *ticket) lookInside() (v view, l *lease, err error) {
	tab, err := t.place.load(t.request.Name)
	if err != nil {
		return v, nil, err
	}
	if by := t.place.self.evictedBy(tab); by != "" {
		return v, nil, &locks.EvictedError{By: by}
	}
	v, l, err = t.place.look(t, tab)
	t.request.TellPlace(v.position)
	return v, l, err
}
