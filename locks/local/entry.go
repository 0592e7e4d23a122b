package local

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"golock/internal/fdtable"
	"golock/internal/procfs"
	"golock/locks"
	"golock/locks/kernel"
)

// entry is a waiter or a holder of this process, in one lock file. All its locks belong to one open
// file description, which the command inherits. The gate is unlocked by then: if the command
// inherited its lock, no other process could use the table.
type entry struct {
	request   *locks.Request
	dir       *directory
	path      string    // the path of the lock file
	file      *lockFile // nil after close
	pathBytes pathBytes
	record    record    // the record of the entry, as this process last wrote it
	clock     clock     // the clock of the times in record
	place     int       // the place in the queue; 1 is next
	obstacles obstacles // what the last tryTake found
	victims   []*victim // evicted entries; they get their signals when the gate is unlocked

	asleep map[int64]bool // bytes whose lock a goroutine waits for
	freed  chan error     // gets an error, or nil, when one of these bytes is free
}

// obstacles are what keeps an entry from its slot. sleep waits until they may have gone.
type obstacles struct {
	predecessor *record  // the live waiter directly before this entry; nil if this entry is the first
	holders     []record // the live holders; the first waiter waits for enough of them
	removedFile bool     // the holders of a removed file are in the way
	damaged     bool     // the table cannot be read
}

// reason returns what is in the way if that is neither holders nor waiters of this file, or "".
func (o *obstacles) reason() string {
	if o.removedFile {
		return "its lock file was removed while it was held, and that holder is still there"
	}
	return ""
}

// tellProgress tells the caller of the request what tryTake has found.
func (e *entry) tellProgress() {
	e.request.Hooks.Obstacle(e.obstacles.reason())
	e.request.Hooks.Place(e.place)
}

// openGate opens the lock file, sets e.file, and locks the gate.
func (e *entry) openGate(ctx context.Context) error {
	f, err := e.dir.openFile(e.request.Name)
	if err != nil {
		return err
	}
	e.file = f
	f.fd = fdtable.MoveHigh(f.fd)
	limit := gateLimit
	if e.request.AtOnce {
		limit = notAtAll
	}
	return f.lockGate(ctx, unix.F_WRLCK, limit)
}

// enter joins the queue of the lock file, or takes the slot at once. It returns nil if it has joined.
func (e *entry) enter(ctx context.Context, adm *admission) (*lease, error) {
	if err := e.openGate(ctx); err != nil {
		return nil, err
	}
	f := e.file
	defer f.unlockGate()
	tab, err := e.load()
	if err != nil {
		return nil, err
	}
	e.clock = readClock()
	e.record = adm.store.newRecord(adm.request, e.clock)
	e.record.ticket = tab.next
	tab.next++
	l, err := e.tryTake(tab)
	if err != nil || l != nil {
		return l, err
	}
	if err := f.checkPath(); err != nil {
		return nil, err
	}
	inside := e.enclosing()
	if inside != nil || e.request.NoWait {
		busy := e.busy(tab)
		busy.Inside = inside
		return nil, busy
	}
	isNewcomer := adm.entry.Load() == nil // an entry that joins a new file has made room before
	if isNewcomer {
		if err := e.makeRoom(adm, tab); err != nil {
			return nil, err
		}
		if len(e.victims) > 0 {
			l, err = e.tryTake(tab)
			if err != nil || l != nil {
				return l, err
			}
		}
	}
	return nil, e.queueUp(tab)
}

// queueUp makes the entry a waiter.
func (e *entry) queueUp(tab *table) error {
	if err := setLock(e.file.fd, unix.F_WRLCK, waitByte(e.record.ticket)); err != nil {
		return e.file.failed("lock", err)
	}
	e.tellProgress()
	e.record.state = stateWaiting
	return e.file.write(tab, &e.record)
}

// load reads the table. It makes a new one if the file is new, or if the table cannot be read and no
// entry uses it. The caller has locked the gate.
func (e *entry) load() (*table, error) {
	f, name := e.file, e.request.Name
	tab, err := f.read()
	switch {
	case err != nil && err != errCorrupt:
		return nil, err
	case err == nil && tab.name == name:
		return tab, nil
	case err == nil && tab.name != "":
		return nil, &locks.PathError{Path: f.path, Err: fmt.Errorf("belongs to the name %q", tab.name), Hint: "remove it"}
	case e.record.state == stateWaiting:
		return nil, e.replaceDamaged()
	case f.isUsed():
		return nil, &locks.PathError{Path: f.path, Err: errDamaged, Hint: "it is repaired when they have ended"}
	case f.stat.Nlink > 1:
		return nil, &locks.PathError{Path: f.path, Err: fmt.Errorf("is not a lock file of golock and has %d names", f.stat.Nlink), Hint: "remove it"}
	}
	return f.reset(name)
}

// replaceDamaged removes a file whose table cannot be read, if only waiters are left. They then
// join again in the file that the next process makes. As long as a holder uses the file, which its
// path bytes show, replaceDamaged returns an error.
func (e *entry) replaceDamaged() error {
	f := e.file
	if err := f.checkPath(); err != nil {
		return err
	}
	damaged := &locks.PathError{Path: f.path, Err: errDamaged, Hint: "it is repaired when they have ended"}
	for _, at := range e.pathBytes {
		if f.isLockedAtAll(at) {
			return damaged
		}
	}
	if err := unix.Unlinkat(e.dir.fd, f.base, 0); err != nil && err != unix.ENOENT {
		return damaged
	}
	return errMoved
}

// tryTake takes the slot if the table allows it. If it does not, tryTake returns nil and sets
// obstacles. It frees records of dead entries. The caller has locked the gate.
func (e *entry) tryTake(tab *table) (l *lease, err error) {
	f, o := e.file, &e.obstacles
	*o = obstacles{}
	o.predecessor, e.place, err = e.findPredecessor(tab)
	if err != nil {
		return nil, err
	}
	isQueued := e.record.state == stateWaiting
	if isQueued && o.predecessor != nil {
		return nil, nil // only the first waiter waits for holders
	}
	var claims []locks.Claim
	for i := range tab.records {
		r := &tab.records[i]
		if r.state != stateHolding {
			continue
		}
		if f.isLive(r) {
			o.holders = append(o.holders, *r)
			claims = append(claims, r.claim())
		} else if err := f.clear(r); err != nil {
			return nil, err
		}
	}
	if o.predecessor != nil {
		return nil, nil // a newcomer behind another waiter needs the holders only for its error (busy)
	}
	isChecked := tab.checkedPath == e.pathMark()
	if !isChecked && isLockedElsewhere(f.kernelName(), e.dir.pathBytesOfAll(e.request.Name), procfs.Locks) {
		o.removedFile = true
		return nil, nil
	}
	if !locks.Admits(claims, e.record.claim()) {
		return nil, nil
	}
	return e.take(tab)
}

// findPredecessor finds the live waiter directly before this entry, and the place of this entry. It
// frees the records of dead waiters between the two. It fails if this entry was evicted.
func (e *entry) findPredecessor(tab *table) (predecessor *record, place int, err error) {
	claim := e.record.claim()
	var before []*record
	for i := range tab.records {
		r := &tab.records[i]
		if r.state != stateWaiting {
			continue
		}
		isEvicted := r.evictor != ""
		if isEvicted && r.index == e.record.index {
			return nil, 0, &locks.EvictedError{By: r.evictor}
		}
		if !isEvicted && r.claim().Before(claim) {
			before = append(before, r)
		}
	}
	slices.SortFunc(before, func(a, b *record) int { return a.claim().Compare(b.claim()) })
	for i, r := range slices.Backward(before) {
		if e.file.isLocked(waitByte(r.ticket), 1) {
			return r, i + 2, nil
		}
		if err := e.file.clear(r); err != nil {
			return nil, 0, err
		}
	}
	return nil, 1, nil
}

// take makes the entry a holder. If it fails, the caller closes the entry, which drops its locks.
func (e *entry) take(tab *table) (*lease, error) {
	f := e.file
	var taken slotSet
	for i := range e.obstacles.holders {
		for _, slot := range e.obstacles.holders[i].slots {
			taken.add(slot)
		}
	}
	slots := locks.FreeSlots(taken.has, e.request.Claim.Weight)
	if slots[len(slots)-1] > maxSlot {
		return nil, &locks.PathError{Path: f.path, Err: fmt.Errorf("more than %d units are in use", maxSlot)}
	}
	if err := setLock(f.fd, unix.F_WRLCK, holdByte(e.record.ticket)); err != nil {
		return nil, f.failed("lock", err)
	}
	for _, at := range e.pathBytes {
		if err := setLock(f.fd, unix.F_RDLCK, at); err != nil {
			return nil, f.failed("lock", err)
		}
	}
	// The path bytes were locked first: a process that makes a new file after this check sees them. If
	// the file was removed, the entry stays in its old queue until it has joined the queue of the new file,
	// but unlocks its hold byte and the path bytes.
	if err := f.checkPath(); err != nil {
		_ = unlockFrom(f.fd, holdByte(e.record.ticket))
		return nil, err
	}
	now := time.Now().UnixMicro()
	tab.checkedPath = e.pathMark()
	tab.fence = max(tab.fence+1, now)
	granted := e.clock.now()
	e.record.state, e.record.fence, e.record.slots = stateHolding, tab.fence, slots
	e.record.since, e.record.written = now, int64(granted)
	if e.request.GrantHold() > 0 {
		e.record.beginHold(granted, e.request.GrantHold())
	}
	if err := f.write(tab, &e.record); err != nil {
		return nil, err
	}
	grant := locks.Grant{Ref: e.request.Ref, Slots: slots, Fence: tab.fence}
	return &lease{kernel.NewLease(grant, []int{f.fd, e.dir.fd}, e.close), e}, nil
}

// sleep returns when the obstacles may have gone.
func (e *entry) sleep(ctx context.Context) error {
	var timer <-chan time.Time
	o := e.obstacles
	switch {
	case o.removedFile, o.damaged:
		timer = time.After(recheck)
	case o.predecessor != nil:
		e.sleepOn(waitByte(o.predecessor.ticket))
	default:
		for _, h := range e.blockers(o.holders) {
			if h.onlyHold {
				timer = time.After(min(h.holdLeft, recheck))
			} else {
				e.sleepOn(holdByte(h.ticket))
			}
		}
	}
	select {
	case err := <-e.freed:
		return err
	case <-timer:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// blockers selects a few holders that together keep this entry from a slot: as long as all of them
// hold, it cannot have one. A thread sleeps on each, and the entry's max limits their number. It
// reorders holders.
func (e *entry) blockers(holders []record) []record {
	tightest := -1 // the index of the holder with the smallest max
	for i := range holders {
		limit := holders[i].max
		if limit != 0 && (tightest < 0 || limit < holders[tightest].max) {
			tightest = i
		}
	}
	if tightest > 0 {
		holders[0], holders[tightest] = holders[tightest], holders[0]
	}
	// The first holder has the smallest max now. So the selected ones together are like one holder
	// with that max and the sum of their weights.
	var together locks.Claim
	for i := range holders {
		c := holders[i].claim()
		together.Weight += c.Weight
		if i == 0 {
			together.Max = c.Max
		}
		if !locks.Admits([]locks.Claim{together}, e.record.claim()) {
			return holders[:i+1]
		}
	}
	return holders
}

// sleepOn starts a goroutine that sends to freed when the byte is free. It starts one for each byte.
func (e *entry) sleepOn(at int64) {
	if e.asleep[at] {
		return
	}
	e.asleep[at] = true
	f := e.file
	f.lockLater(unix.F_RDLCK, at, func(err error) {
		// A command that has inherited the description must not keep this lock.
		_ = setLock(f.fd, unix.F_UNLCK, at)
		select {
		case e.freed <- err:
		default: // a wake-up is already pending
		}
	})
}

// close ends the entry. It unlocks before it closes, because other processes may have inherited the
// description, and a goroutine may still wait for a lock of it.
func (e *entry) close() (err error) {
	if e.file != nil {
		err = unlockFrom(e.file.fd, 0)
		e.file.close()
		e.file = nil
	}
	e.dir.close()
	return err
}
