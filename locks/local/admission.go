package local

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks"
)

// admission is a request, from Join to the grant.
type admission struct {
	store    *Store
	request  locks.Request
	entry    atomic.Pointer[entry] // atomic because Evicted may be called in another goroutine than Wait
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

	// recheck is the time between two attempts of a waiter that the kernel does not wake: the first
	// waiter, if a hold may be evicted or holders of a removed file are in its way, and all waiters
	// while the table is damaged.
	recheck = time.Second
)

// These methods implement locks.Admission.
func (adm *admission) Queued() bool            { return adm.lease == nil }
func (adm *admission) Replaced() []locks.Entry { return adm.replaced }
func (adm *admission) Evicted() error          { return adm.entry.Load().evicted() }

// join makes an entry in the file to which the path leads now. It takes the slot if it is free.
func (adm *admission) join(ctx context.Context) error {
	var e *entry
	for range maxMoves {
		d, err := adm.store.openForUse()
		if err != nil {
			return err
		}
		if d.isMade && adm.store.path != "" { // a missing directory is no surprise if it is the default one
			adm.request.Hooks.NewDirectory(d.path)
		}
		e = &entry{
			request: &adm.request, dir: d, path: d.path + "/" + fileName(adm.request.Name),
			pathBytes: d.pathBytes(adm.request.Name), asleep: map[int64]bool{}, freed: make(chan error, 1),
		}
		l, err := e.enter(ctx, adm)
		for _, v := range e.victims {
			_ = v.end() // if the victim cannot be signalled, the newcomer waits for it
		}
		if err == nil {
			adm.entry.Store(e)
			adm.lease = l
			return nil
		}
		_ = e.close()
		if err != errMoved {
			return err
		}
	}
	return &locks.PathError{Path: e.path, Err: errors.New("it is removed again and again")}
}

// Wait implements locks.Admission.
func (adm *admission) Wait(ctx context.Context) (locks.Lease, error) {
	err := adm.wait(ctx)
	if err == nil {
		return adm.lease, nil
	}
	e := adm.entry.Load()
	evicted := e.evicted() // before close: after it another process may use the record
	_ = e.close()
	if ctx.Err() == nil {
		return nil, err
	}
	if evicted != nil {
		return nil, evicted
	}
	if reason := e.obstacles.reason(); reason != "" {
		return nil, &locks.BusyError{Name: adm.request.Name, Reason: reason}
	}
	return nil, ctx.Err()
}

// wait sleeps and tries until the slot is granted. It first waits for the obstacles that join has
// found. If they have gone since, that sleep ends at once.
func (adm *admission) wait(ctx context.Context) error {
	for adm.lease == nil {
		e := adm.entry.Load()
		err := e.sleep(ctx)
		if err == nil {
			adm.lease, err = e.tryAgain(ctx)
		}
		if errors.Is(err, errDamaged) { // somebody may mend the table, or its holders may end
			e.obstacles = obstacles{damaged: true}
			err = nil
		}
		if err == errMoved {
			err = adm.join(ctx)
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
		e.request.Hooks.Later(l.unlockWaitByte)
	} else {
		l.unlockWaitByte()
	}
}
