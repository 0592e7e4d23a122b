package local

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks"
)

// ticket is a request, from Join to the grant.
type ticket struct {
	store    *Store
	request  locks.Request
	entry    atomic.Pointer[entry] // atomic because Evicted may be called in another goroutine than Wait
	lease    *lease                // set when the slot is granted
	replaced []locks.Entry
}

var (
	// errMoved says that the lock file was removed or replaced, so that the ticket has to join again.
	errMoved = errors.New("the lock file was removed")

	// errDamaged says that the table cannot be read and that entries use it.
	errDamaged = errors.New("is damaged, and somebody holds or waits in it")
)

const (
	// maxMoves limits how often in a row the file may be removed under a newcomer.
	maxMoves = 100

	// recheck is the time between two attempts of a waiter that the kernel does not wake: the first
	// waiter, if a hold may be evicted or holders of a removed file are in its way, and all waiters
	// while the table is damaged.
	recheck = time.Second
)

// These methods implement locks.Ticket.
func (t *ticket) Queued() bool            { return t.lease == nil }
func (t *ticket) Replaced() []locks.Entry { return t.replaced }
func (t *ticket) Evicted() error          { return t.entry.Load().evicted() }

// join makes an entry in the file to which the path leads now. It takes the slot if it is free.
func (t *ticket) join(ctx context.Context) error {
	var e *entry
	for range maxMoves {
		d, err := t.store.openForUse()
		if err != nil {
			return err
		}
		if d.isMade && t.store.path != "" { // a missing directory is no surprise if it is the default one
			t.request.TellMade(d.path)
		}
		e = &entry{
			request: &t.request, dir: d, path: d.path + "/" + fileName(t.request.Name),
			pathBytes: d.pathBytes(t.request.Name), asleep: map[int64]bool{}, freed: make(chan error, 1),
		}
		l, err := e.enter(ctx, t)
		for _, v := range e.victims {
			_ = v.end() // if the victim cannot be signalled, the newcomer waits for it
		}
		if err == nil {
			t.entry.Store(e)
			t.lease = l
			return nil
		}
		_ = e.close()
		if err != errMoved {
			return err
		}
	}
	return &locks.PathError{Path: e.path, Err: errors.New("it is removed again and again")}
}

// Wait implements locks.Ticket.
func (t *ticket) Wait(ctx context.Context) (locks.Lease, error) {
	err := t.wait(ctx)
	if err == nil {
		return t.lease, nil
	}
	e := t.entry.Load()
	evicted := e.evicted() // before close: after it another process may use the record
	_ = e.close()
	if ctx.Err() == nil {
		return nil, err
	}
	if evicted != nil {
		return nil, evicted
	}
	if reason := e.obstacles.reason(); reason != "" {
		return nil, &locks.BusyError{Name: t.request.Name, Reason: reason}
	}
	return nil, ctx.Err()
}

// wait sleeps and tries until the ticket has a lease. It first waits for the obstacles that join has
// found. If they have gone since, that sleep ends at once.
func (t *ticket) wait(ctx context.Context) error {
	for t.lease == nil {
		e := t.entry.Load()
		err := e.sleep(ctx)
		if err == nil {
			t.lease, err = e.tryAgain(ctx)
		}
		if errors.Is(err, errDamaged) { // somebody may mend the table, or its holders may end
			e.obstacles = obstacles{damaged: true}
			err = nil
		}
		if err == errMoved {
			err = t.join(ctx)
			if err == nil {
				_ = e.close()
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// tryAgain locks the gate and tries to take the slot, after a sleep.
func (e *entry) tryAgain(ctx context.Context) (l *lease, err error) {
	if err := e.file.lockGate(ctx, unix.F_WRLCK, forever); err != nil {
		return nil, err
	}
	defer func() {
		e.file.unlockGate()
		if l != nil {
			e.wakeNext(l)
		}
	}()
	tab, err := e.load()
	if err != nil {
		return nil, err
	}
	l, err = e.tryTake(tab)
	if err == nil {
		e.tellProgress()
	}
	return l, err
}

// wakeNext wakes the next waiter. Beside an entry that holds alone the next waiter gets no slot. It only
// has to sleep on another byte, so the start of the command goes first.
func (e *entry) wakeNext(l *lease) {
	holdsAlone := len(e.obstacles.holders) == 0 && e.record.weight == e.record.max
	if holdsAlone {
		e.request.DoLater(l.unlockWaitByte)
	} else {
		l.unlockWaitByte()
	}
}
