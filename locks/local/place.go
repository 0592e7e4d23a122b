package local

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"golock/internal/fdtable"
	"golock/internal/procfs"
	"golock/locks"
	"golock/locks/kernel"
)

// place is an entry in a lock file. All its locks belong to one open file description, which the
// command inherits when the place holds. The gate is open by then, and the place never locks it
// again.
type place struct {
	request   *locks.Request
	dir       *directory
	path      string    // the path of the lock file
	file      *lockFile // nil when the place is closed
	pathLocks pathLocks
	self      record
	clock     clock     // the clock of self's times
	view      view      // what stood in the way when look was last called
	victims   []*victim // evicted entries; they get their signals when the gate is open

	asleep map[int64]bool // bytes whose lock a goroutine waits for
	freed  chan error     // gets an error, or nil, when one of these bytes is free
}

// view says what keeps an entry from its slot.
type view struct {
	position int
	front    *record  // the waiter before this one; sleep until it no longer waits
	holders  []record // if front is nil, the waiter sleeps until enough of these no longer hold
	removed  bool     // the holders of a removed file are in the way; look again after a moment
	damaged  bool     // the table cannot be read; look again after a moment
}

// enter joins the queue.
func (p *place) enter(ctx context.Context, t *ticket) (*lease, error) {
	f, err := p.dir.openFile(p.request.Name)
	if err != nil {
		return nil, err
	}
	p.file = f
	f.fd = fdtable.MoveHigh(f.fd)
	limit := gateLimit
	if p.request.AtOnce {
		limit = notAtAll
	}
	if err := f.gate(ctx, unix.F_WRLCK, limit); err != nil {
		return nil, err
	}
	defer f.openGate()
	tab, err := p.load()
	if err != nil {
		return nil, err
	}
	p.clock = readClock()
	p.self = t.store.newRecord(t.request, p.clock)
	p.self.ticket = tab.next
	tab.next++
	l, err := p.look(tab)
	if err != nil || l != nil {
		return l, err
	}
	if err := f.checkPath(); err != nil {
		return nil, err
	}
	if inside := p.enclosing(); inside != nil || p.request.NoWait {
		busy := p.busy(tab)
		busy.Inside = inside
		return nil, busy
	}
	if t.place.Load() == nil { // a newcomer; an entry that moves to a new file has had its turn to replace
		if err := p.makeRoom(t, tab); err != nil {
			return nil, err
		}
		if len(p.victims) > 0 {
			if l, err = p.look(tab); err != nil || l != nil {
				return l, err
			}
		}
	}
	if err := setLock(f.fd, unix.F_WRLCK, waitByte(p.self.ticket)); err != nil {
		return nil, f.failed("lock", err)
	}
	p.request.TellPlace(p.view.position)
	p.self.state = stateWaiting
	return nil, f.write(tab, &p.self)
}

// load reads the table inside the gate. It makes a new table if the file is new, or if the table
// cannot be read and no entry uses it.
func (p *place) load() (*table, error) {
	f, name := p.file, p.request.Name
	tab, err := f.read()
	switch {
	case err != nil && err != errCorrupt:
		return nil, err
	case err == nil && tab.name == name:
		return tab, nil
	case err == nil && tab.name != "":
		return nil, &locks.PathError{Path: f.path, Err: fmt.Errorf("belongs to the name %q", tab.name), Hint: "remove it"}
	case p.self.state == stateWaiting:
		return nil, p.replaceDamaged()
	case f.isUsed():
		return nil, &locks.PathError{Path: f.path, Err: errDamaged, Hint: "it is repaired when they have ended"}
	case f.stat.Nlink > 1:
		return nil, &locks.PathError{Path: f.path, Err: fmt.Errorf("is not a lock file of golock and has %d names", f.stat.Nlink), Hint: "remove it"}
	}
	return f.reset(name)
}

// replaceDamaged removes a file whose table cannot be read, if only waiters are left. They then
// join again in the file that the next process makes. As long as holders use the file, it returns
// an error that says so.
func (p *place) replaceDamaged() error {
	f := p.file
	if err := f.checkPath(); err != nil {
		return err
	}
	damaged := &locks.PathError{Path: f.path, Err: errDamaged, Hint: "it is repaired when they have ended"}
	for _, at := range p.pathLocks {
		if f.isReadLocked(at) {
			return damaged
		}
	}
	if err := unix.Unlinkat(p.dir.fd, f.base, 0); err != nil && err != unix.ENOENT {
		return damaged
	}
	return errMoved
}

// look decides from the table whether it is the turn of p, and takes the slot if it is. It frees
// records of dead entries. The caller is inside the gate.
func (p *place) look(tab *table) (l *lease, err error) {
	f, v := p.file, &p.view
	*v = view{}
	v.front, v.position, err = p.inFront(tab)
	if err != nil || v.front != nil && p.self.state == stateWaiting {
		return nil, err // only the first waiter looks at the holders
	}
	var claims []locks.Claim
	for i := range tab.records {
		r := &tab.records[i]
		if r.state != stateHolding {
			continue
		}
		if f.isLive(r) {
			v.holders, claims = append(v.holders, *r), append(claims, r.claim())
		} else if err := f.clear(r); err != nil {
			return nil, err
		}
	}
	switch {
	case v.front != nil:
	case tab.checkedPath != p.pathMark() && lockedElsewhere(f.kernelName(), p.dir.placesElsewhere(p.request.Name), procfs.Locks):
		v.removed = true
	case locks.Admits(claims, p.self.claim()):
		return p.take(tab)
	}
	return nil, nil
}

// inFront finds the live waiter before p, and the position of p. An evicted p has no position.
func (p *place) inFront(tab *table) (*record, int, error) {
	var before []*record
	for i := range tab.records {
		r := &tab.records[i]
		switch {
		case r.state != stateWaiting:
		case r.index == p.self.index && r.evictor != "":
			return nil, 0, &locks.EvictedError{By: r.evictor}
		case r.evictor == "" && r.claim().Before(p.self.claim()):
			before = append(before, r)
		}
	}
	slices.SortFunc(before, func(a, b *record) int { return a.claim().Compare(b.claim()) })
	for i, front := range slices.Backward(before) {
		if p.file.isLocked(waitByte(front.ticket), 1) {
			return front, i + 2, nil
		}
		if err := p.file.clear(front); err != nil {
			return nil, 0, err
		}
	}
	return nil, 1, nil
}

// take makes p a holder. If it fails, the caller closes p, which drops its locks.
func (p *place) take(tab *table) (*lease, error) {
	f := p.file
	var taken slotSet
	for i := range p.view.holders {
		for _, slot := range p.view.holders[i].slots {
			taken.add(slot)
		}
	}
	slots := locks.FreeSlots(taken.has, p.request.Claim.Weight)
	if slots[len(slots)-1] > maxSlot {
		return nil, &locks.PathError{Path: f.path, Err: fmt.Errorf("more than %d units are in use", maxSlot)}
	}
	if err := setLock(f.fd, unix.F_WRLCK, holdByte(p.self.ticket)); err != nil {
		return nil, f.failed("lock", err)
	}
	for _, at := range p.pathLocks {
		if err := setLock(f.fd, unix.F_RDLCK, at); err != nil {
			return nil, f.failed("lock", err)
		}
	}
	// The path locks come first: a process that makes a new file after this check sees them. If the
	// file was removed, p stays in its old queue until it is in the queue of the new file, but drops
	// the path locks.
	if err := f.checkPath(); err != nil {
		_ = unlockFrom(f.fd, holdByte(p.self.ticket))
		return nil, err
	}
	now := time.Now().UnixMicro()
	tab.checkedPath = p.pathMark()
	tab.fence = max(tab.fence+1, now)
	p.self.state, p.self.fence, p.self.slots, p.self.since = stateHolding, tab.fence, slots, now
	granted := p.clock.now()
	p.self.written = int64(granted)
	if p.request.GrantHold() > 0 {
		p.self.beginHold(granted, p.request.GrantHold())
	}
	if err := f.write(tab, &p.self); err != nil {
		return nil, err
	}
	grant := locks.Grant{Ref: p.request.Ref, Slots: slots, Fence: tab.fence}
	return &lease{kernel.NewLease(grant, []int{f.fd, p.dir.fd}, p.close), p}, nil
}

// enclosing finds the run around this process among the holders of the name. If the file was
// removed, its holders are not known, and the enclosing run may be one of them.
func (p *place) enclosing() *locks.Ref {
	for _, run := range slices.Backward(p.request.Within) {
		isEnclosing := func(h record) bool { return h.id == run.ID && !h.onlyHold && p.mayEnclose(&h) }
		if p.view.removed || slices.ContainsFunc(p.view.holders, isEnclosing) {
			return &run
		}
	}
	return nil
}

// mayEnclose reports whether this process may be part of what a holder runs. It cannot be if the
// holder's golock lives and is not an ancestor: at(1) has started this process, or it has become a
// daemon. If the golock has become its command, the slot lasts as long as any process has inherited
// it. This process may have, and would then wait for itself.
func (p *place) mayEnclose(h *record) bool {
	if h.pidNS == 0 || h.pidNS != procfs.Namespace("pid") || !h.isAlive() {
		return true // the process that the record names has ended, or cannot be seen here
	}
	is, known := procfs.IsAncestor(int(h.pid))
	if is || !known {
		return true
	}
	if h.noGolock == 0 {
		return false
	}
	keepers := append([]int{os.Getpid()}, procfs.Ancestors(os.Getpid())...)
	holder := &victim{record: *h, file: p.file, kernelName: p.file.kernelName()}
	return slices.ContainsFunc(keepers, func(pid int) bool {
		owns, _ := holder.owns(pid)
		return owns
	})
}

// sleep returns when what is in the way may have gone.
func (p *place) sleep(ctx context.Context) error {
	var look <-chan time.Time
	v := p.view
	switch {
	case v.removed, v.damaged:
		look = time.After(recheck)
	case v.front != nil:
		p.sleepOn(waitByte(v.front.ticket))
	default:
		for _, h := range p.blockers(v.holders) {
			if h.onlyHold {
				look = time.After(min(h.holdLeft, recheck))
			} else {
				p.sleepOn(holdByte(h.ticket))
			}
		}
	}
	select {
	case err := <-p.freed:
		return err
	case <-look:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// blockers selects holders. As long as all of them hold, p cannot have a slot. It selects few,
// because a thread sleeps on each, and never more than the max of p.
func (p *place) blockers(holders []record) []record {
	tightest := -1
	for i := range holders {
		limit := holders[i].max
		if limit != 0 && (tightest < 0 || limit < holders[tightest].max) {
			tightest = i
		}
	}
	if tightest > 0 { // as many holders as exceed the smallest max suffice
		holders[0], holders[tightest] = holders[tightest], holders[0]
	}
	var claims []locks.Claim
	together := locks.Claim{}
	for i := range holders {
		c := holders[i].claim()
		together.Weight += c.Weight
		if i == 0 {
			together.Max = c.Max
		}
		claims = append(claims[:0], together)
		if !locks.Admits(claims, p.self.claim()) {
			return holders[:i+1]
		}
	}
	return holders
}

// sleepOn starts a goroutine that reports to p.freed when a byte is free.
func (p *place) sleepOn(at int64) {
	if p.asleep[at] {
		return
	}
	p.asleep[at] = true
	f := p.file
	f.lockLater(unix.F_RDLCK, at, func(err error) {
		// A command that has inherited the description must not keep this lock.
		_ = setLock(f.fd, unix.F_UNLCK, at)
		select {
		case p.freed <- err:
		default: // a wake-up is already pending
		}
	})
}

// close gives up the place. It unlocks before it closes, because other processes may have inherited
// the description, and a goroutine may still wait for a lock of it.
func (p *place) close() (err error) {
	if p.file != nil {
		err = unlockFrom(p.file.fd, 0)
		p.file.close()
		p.file = nil
	}
	p.dir.close()
	return err
}
