package local

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks"
)

// ticket is a request, from Join to the grant. It sleeps until the entry in front of it has gone,
// and looks again.
type ticket struct {
	store    *Store
	request  locks.Request
	place    atomic.Pointer[place] // atomic because Evicted may be called in another goroutine than Wait
	lease    *lease                // set when the slot is granted
	replaced []locks.Entry
}

var (
	// errMoved says that the lock file was removed or replaced, so that the entry has to join again.
	errMoved = errors.New("the lock file was removed")

	// errDamaged says that the table cannot be read and that entries use it.
	errDamaged = errors.New("is damaged, and somebody holds or waits in it")
)

const (
	// maxMoves limits how often in a row the file may be removed under a newcomer.
	maxMoves = 100

	// recheck is the time between two looks of the first waiter. The kernel wakes nobody when a hold
	// is evicted, or when the holders of a removed file have gone. While the table is damaged, all
	// waiters look so often.
	recheck = time.Second
)

// These methods implement locks.Ticket.
func (t *ticket) Queued() bool            { return t.lease == nil }
func (t *ticket) Replaced() []locks.Entry { return t.replaced }
func (t *ticket) Evicted() error          { return t.place.Load().evicted() }

// join takes a place in the file to which the path leads now. It may also take the slot.
func (t *ticket) join(ctx context.Context) error {
	var p *place
	for range maxMoves {
		d, err := t.store.openForUse()
		if err != nil {
			return err
		}
		if d.isMade && t.store.path != "" { // a missing directory is no surprise if it is the default one
			t.request.TellMade(d.path)
		}
		p = &place{
			request: &t.request, dir: d, path: d.path + "/" + fileName(t.request.Name),
			pathLocks: d.pathLocks(t.request.Name), asleep: map[int64]bool{}, freed: make(chan error, 1),
		}
		l, err := p.enter(ctx, t)
		for _, v := range p.victims {
			_ = v.end() // if the victim cannot be signalled, the newcomer waits for it
		}
		if err == nil {
			t.place.Store(p)
			t.lease = l
			return nil
		}
		_ = p.close()
		if err != errMoved {
			return err
		}
	}
	return &locks.PathError{Path: p.path, Err: errors.New("it is removed again and again")}
}

// Wait implements locks.Ticket.
func (t *ticket) Wait(ctx context.Context) (locks.Lease, error) {
	err := t.wait(ctx)
	if err == nil {
		return t.lease, nil
	}
	p := t.place.Load()
	evicted := p.evicted() // before the place is given up: others may use its record afterwards
	_ = p.close()
	if ctx.Err() == nil {
		return nil, err
	}
	if evicted != nil {
		return nil, evicted
	}
	if p.view.removed {
		return nil, &locks.BusyError{Name: t.request.Name, Reason: whyRemoved}
	}
	return nil, ctx.Err()
}

// wait moves t forward in the queue until it holds. It begins with what join has seen. If that has
// changed since, the sleep ends at once.
func (t *ticket) wait(ctx context.Context) error {
	for t.lease == nil {
		p := t.place.Load()
		err := p.sleep(ctx)
		if err == nil {
			t.lease, err = p.lookAgain(ctx)
		}
		if errors.Is(err, errDamaged) { // somebody may mend the table, or its holders may end
			p.view = view{damaged: true}
			err = nil
		}
		if err == errMoved {
			if err = t.join(ctx); err == nil {
				_ = p.close()
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// lookAgain looks once, inside the gate. A holder that holds alone leaves the queue only later
// (Request.Later).
func (p *place) lookAgain(ctx context.Context) (l *lease, err error) {
	if err := p.file.gate(ctx, unix.F_WRLCK, forever); err != nil {
		return nil, err
	}
	defer func() {
		p.file.openGate()
		switch {
		case l == nil:
		case len(p.view.holders) > 0 || p.self.weight != p.self.max:
			l.unlockWaitByte()
		default:
			p.request.DoLater(l.unlockWaitByte)
		}
	}()
	tab, err := p.load()
	if err != nil {
		return nil, err
	}
	if l, err = p.look(tab); err == nil {
		p.request.TellPlace(p.view.position)
	}
	return l, err
}
