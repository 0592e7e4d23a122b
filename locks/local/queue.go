package local

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks"
)

// ticket is one request of ours, from Join to the grant. Its walker, one
// goroutine, sleeps in the kernel on the entry in front of it and looks again
// whenever that has gone.
type ticket struct {
	store   *Store
	request locks.Request
	queued  bool

	// mu decides between granting and leaving: the walker holds it while it
	// looks, Wait when it gives up.
	mu    sync.Mutex
	left  bool
	place *place // replaced by the walker alone
	lease *lease
	line  atomic.Int64 // the place in the queue
	after bool         // the last look found the holders of a removed file in the way

	own      atomic.Pointer[whereabouts]
	replaced []locks.Entry // whom it evicted
}

// place is an entry in one lock file. Two descriptions of the file belong to
// it. table carries the gate and the wait byte, is close-on-exec and the only
// one through which the text is read and written: a gate on a description that
// the command inherited would shut the name for as long as the command lives.
// hold carries the hold byte and the traces and nothing else, and is what
// the command inherits.
type place struct {
	dir     *directory
	table   *lockFile // nil once p holds
	hold    int
	traces  traces
	self    record
	watched map[int64]bool // holders that a goroutine sleeps on, through table
	victims []victim       // evicted, and to be told when the gate is open
}

var (
	// errMoved says that the lock file was removed or replaced: join again.
	errMoved = errors.New("the lock file was removed")

	// errDamaged says that the table cannot be read and is in use.
	errDamaged = errors.New("is damaged, and somebody holds or waits by it")
)

// maxMoves is how often in a row the file may be removed under a newcomer.
const maxMoves = 100

// holdCheck is how often the first in line looks whether a slot that no process
// holds any more has been taken back; when its time is over it knows. Nobody is
// there whom the kernel could tell it of.
const holdCheck = time.Second

// removedCheck is how often the first in line of a new file asks whether the
// holders of the removed one are gone. The kernel cannot wake it for that.
const removedCheck = time.Second

// decision is what a look at the table came to, if not to a grant.
type decision struct {
	front   *record  // sleep until this one no longer waits
	holders []record // else until enough of these no longer hold
	removed bool     // or, for a moment: the holders of a removed file are in the way
}

// join takes a place in the file that the path leads to now. There is a lease
// unless it has queued.
func (t *ticket) join(ctx context.Context) (*place, *lease, error) {
	var path string
	for range maxMoves {
		d, err := t.store.directory()
		if err != nil {
			return nil, nil, err
		}
		p := &place{dir: d, hold: -1, traces: d.traces(t.request.Name)}
		l, err := p.enter(ctx, t)
		for _, v := range p.victims {
			_ = v.tell() // who cannot be told is waited for
		}
		if err == nil {
			t.own.Store(&whereabouts{path: p.table.path, index: p.self.index, id: p.self.id})
			if l != nil {
				l.own = t.own.Load()
				p.closeTable()
			}
			return p, l, nil
		}
		path = p.dir.path + "/" + fileName(t.request.Name)
		p.abandon()
		if err != errMoved {
			return nil, nil, err
		}
	}
	return nil, nil, &Error{Path: path, Err: errors.New("something removes it all the time")}
}

func (p *place) enter(ctx context.Context, t *ticket) (*lease, error) {
	var err error
	if p.table, err = p.dir.openFile(t.request.Name); err != nil {
		return nil, err
	}
	again, err := p.dir.openFile(t.request.Name)
	if err != nil {
		return nil, err
	}
	if p.hold, err = highCopy(again.fd); err != nil {
		return nil, &Error{Op: "fcntl", Path: p.table.path, Err: err}
	}
	if !again.same(&p.table.stat) {
		return nil, errMoved
	}
	if err := p.table.gate(ctx, unix.F_WRLCK, gateLimit); err != nil {
		return nil, err
	}
	defer p.table.openGate()

	tab, err := p.load(t.request.Name)
	if err != nil {
		return nil, err
	}
	p.self = t.store.newRecord(t.request)
	p.self.claim.Ticket = tab.next
	tab.next++

	do, lease, err := p.look(t, tab)
	if err != nil || lease != nil {
		return lease, err
	}
	t.line.Store(p.inLine(tab))
	if removed, err := p.table.removed(); err != nil || removed {
		return nil, orMoved(err)
	}
	if inside := enclosing(t.request, do); inside != nil {
		return nil, &locks.NestedError{Name: t.request.Name, Inside: *inside, Busy: t.store.busy(p.table, tab, do)}
	}
	if t.request.NoWait {
		return nil, t.store.busy(p.table, tab, do)
	}
	if !t.queued {
		full, err := p.makeRoom(t, tab)
		if err != nil {
			return nil, err
		}
		if full {
			busy := t.store.busy(p.table, tab, do)
			busy.Full = true
			return nil, busy
		}
		if len(p.victims) > 0 {
			if _, lease, err = p.look(t, tab); err != nil || lease != nil {
				return lease, err
			}
		}
	}
	if err := setLock(p.table.fd, unix.F_WRLCK, waitByte(p.self.claim.Ticket), 1, false); err != nil {
		return nil, p.table.lockError(err)
	}
	p.self.state = stateWaiting
	return nil, p.table.put(tab, &p.self)
}

func orMoved(err error) error {
	if err != nil {
		return err
	}
	return errMoved
}

// load reads the table inside the gate, makes it if the file is new, and makes
// it anew if it is unreadable and nobody uses it.
func (p *place) load(name string) (*table, error) {
	f := p.table
	tab, err := f.read()
	switch {
	case err == errCorrupt || (err == nil && tab.name == ""):
	case err != nil:
		return nil, err
	case tab.name != name:
		return nil, &Error{Path: f.path, Err: fmt.Errorf("belongs to the name %q", tab.name), Hint: "remove it"}
	default:
		return tab, nil
	}
	used, err := writeLocked(f.fd, waitBase, pathBase-waitBase)
	switch {
	case err != nil:
		return nil, f.lockError(err)
	case used || p.self.state == stateWaiting: // also if p itself is the only one
		return nil, &Error{Path: f.path, Err: errDamaged, Hint: "it is repaired when they have ended"}
	case f.stat.Nlink > 1:
		return nil, &Error{Path: f.path, Err: fmt.Errorf("is not a lock file of golock and has %d names", f.stat.Nlink), Hint: "remove it"}
	}
	return f.reset(name)
}

// look decides what the state of the table means for p, and takes the slot if
// it is p's turn. The caller is inside the gate. Records of the dead that it
// meets on the way are freed.
func (p *place) look(t *ticket, tab *table) (decision, *lease, error) {
	f := p.table
	var do decision
	var err error
	if do.front, err = p.inFront(tab); err != nil {
		return do, nil, err
	}
	if do.front != nil && p.self.state == stateWaiting {
		return do, nil, nil // only the first looks at the holders
	}
	var claims []locks.Claim
	for i := range tab.records {
		r := &tab.records[i]
		if r.state != stateHolding {
			continue
		}
		live, err := writeLocked(f.fd, holdByte(r.claim.Ticket), 1)
		if err != nil {
			return do, nil, f.lockError(err)
		}
		if r.ended = !live && r.stays(); !live && !r.ended {
			if err := f.vacate(tab, r); err != nil {
				return do, nil, err
			}
			continue
		}
		do.holders = append(do.holders, *r)
		claims = append(claims, r.claim)
	}
	switch {
	case do.front != nil:
	case tab.settled != p.settledMark() && f.heldElsewhere(p.traces):
		do.removed = true
	case locks.Admits(claims, p.self.claim):
		l, err := p.take(t, tab, do.holders)
		return do, l, err
	}
	return do, nil, nil
}

// inLine is the place in the queue, by the records.
func (p *place) inLine(tab *table) int64 {
	line := int64(1)
	for i := range tab.records {
		if r := &tab.records[i]; p.isBehind(r) {
			line++
		}
	}
	return line
}

// inFront finds the live waiter that stands directly before p.
func (p *place) inFront(tab *table) (*record, error) {
	var before []*record // all of them, once the nearest was found dead
	for {
		var front *record
		switch {
		case len(before) > 0:
			front, before = before[0], before[1:]
		case before == nil:
			for i := range tab.records {
				if r := &tab.records[i]; p.isBehind(r) && (front == nil || front.claim.Before(r.claim)) {
					front = r
				}
			}
		}
		if front == nil {
			return nil, nil
		}
		live, err := writeLocked(p.table.fd, waitByte(front.claim.Ticket), 1)
		if err != nil {
			return nil, p.table.lockError(err)
		}
		if live {
			return front, nil
		}
		if err := p.table.vacate(tab, front); err != nil {
			return nil, err
		}
		if before == nil {
			before = p.allBefore(tab)
		}
	}
}

// isBehind reports whether r waits before p.
func (p *place) isBehind(r *record) bool {
	return r.state == stateWaiting && r.evictor == "" && r.claim.Before(p.self.claim)
}

// allBefore are those that wait before p by the records, the nearest first;
// never nil. There may be thousands, all dead.
func (p *place) allBefore(tab *table) []*record {
	before := []*record{}
	for i := range tab.records {
		if r := &tab.records[i]; p.isBehind(r) {
			before = append(before, r)
		}
	}
	slices.SortFunc(before, func(a, b *record) int {
		switch {
		case a.claim.Before(b.claim):
			return 1
		case b.claim.Before(a.claim):
			return -1
		}
		return 0
	})
	return before
}

// take makes p a holder. What fails half-way leaves no lock behind.
func (p *place) take(t *ticket, tab *table, holders []record) (_ *lease, err error) {
	f := p.table
	slots := locks.FreeSlots(func(slot int) bool {
		for i := range holders {
			if holders[i].holds(slot) {
				return true
			}
		}
		return false
	}, p.self.claim.Weight)
	if slots[len(slots)-1] > maxSlot {
		return nil, &Error{Path: f.path, Err: fmt.Errorf("more than %d units are in use", maxSlot)}
	}
	defer func() {
		if err != nil {
			p.letGo()
		}
	}()
	if err := setLock(p.hold, unix.F_WRLCK, holdByte(p.self.claim.Ticket), 1, false); err != nil {
		return nil, f.lockError(err)
	}
	for _, at := range p.traces {
		if err := setLock(p.hold, unix.F_RDLCK, at, 1, false); err != nil {
			return nil, f.lockError(err)
		}
	}
	// The traces are locked before this question: who makes a new file after it
	// will see them.
	if removed, err := f.removed(); err != nil || removed {
		return nil, orMoved(err)
	}
	now := time.Now().UnixMicro()
	tab.settled = p.settledMark()
	tab.fence = max(tab.fence+1, now)
	p.self.state, p.self.fence, p.self.slots, p.self.since = stateHolding, tab.fence, slotRanges(slots), now
	if t.request.Hold > 0 {
		p.self.until, p.self.boot = int64(locks.BootTime().Add(t.request.Hold)), thisBoot()
	}
	if err := f.put(tab, &p.self); err != nil {
		return nil, err
	}
	return &lease{
		grant: locks.Grant{Ref: t.request.Ref, Slots: slots, Fence: tab.fence},
		place: p,
		alone: len(holders) == 0 && p.self.claim.Weight == p.self.claim.Max,
	}, nil
}

// enclosing finds the run around us among the holders of this name. Those of a
// removed file are not listed, but one that says it is around us may be there.
func enclosing(r locks.Request, do decision) *locks.Ref {
	for i := len(r.Within) - 1; i >= 0; i-- {
		if r.Within[i].Key != r.Ref.Key {
			continue
		}
		if do.removed || slices.ContainsFunc(do.holders, func(h record) bool { return h.id == r.Within[i].ID && !h.ended }) {
			return &r.Within[i]
		}
	}
	return nil
}

// Queued implements locks.Ticket.
func (t *ticket) Queued() bool { return t.queued }

// Wait implements locks.Ticket.
func (t *ticket) Wait(ctx context.Context) (locks.Lease, error) {
	if !t.queued {
		return t.lease, nil
	}
	done := make(chan error, 1)
	go func() {
		var err error
		defer func() {
			if v := recover(); v != nil {
				err = locks.NewPanicError(v)
			}
			if err != nil && t.leave() == nil {
				t.place.close()
			}
			done <- err
		}()
		err = t.walk(ctx)
	}()
	select {
	case err := <-done:
		if err != nil && ctx.Err() != nil {
			err = t.gaveUp(ctx)
		}
		if err != nil {
			return nil, err
		}
		return t.lease, nil
	case <-ctx.Done():
	}
	if lease := t.leave(); lease != nil {
		return lease, nil
	}
	return nil, t.gaveUp(ctx)
}

// Place implements locks.Located.
func (t *ticket) Place() int { return int(t.line.Load()) }

// Replaced implements locks.Replacer.
func (t *ticket) Replaced() []locks.Entry { return t.replaced }

// gaveUp is the error of a wait that ctx ended.
func (t *ticket) gaveUp(ctx context.Context) error {
	if err := t.own.Load().evicted(); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.after {
		return &locks.BusyError{Name: t.request.Name, Reason: whyRemoved}
	}
	return ctx.Err()
}

// leave takes the entry out of the queue, unless it was granted just before.
// The walker may sleep on in the kernel until the one in front has gone; then
// it finds left set, closes the files and ends.
func (t *ticket) leave() locks.Lease {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lease != nil {
		return t.lease
	}
	if !t.left {
		t.left = true
		t.place.unlock()
	}
	return nil
}

// walk moves t forward in the queue until it holds.
func (t *ticket) walk(ctx context.Context) error {
	freed := make(chan error, 1) // room for one wake-up; more would say the same
	for {
		do, err := t.step(ctx)
		if err == errMoved {
			err = t.rejoin(ctx)
			if err == nil && t.lease == nil {
				continue
			}
		}
		if err != nil || t.lease != nil {
			return err
		}
		p := t.place
		some := p.inTheWay(do.holders)
		switch {
		case do.removed:
			err = pause(ctx, removedCheck)
		case do.front != nil:
			err = p.sleep(waitByte(do.front.claim.Ticket))
		case len(some) == 1 && !some[0].ended:
			err = p.sleep(holdByte(some[0].claim.Ticket))
		default:
			err = p.watch(ctx, some, freed)
		}
		if err != nil {
			return err
		}
	}
}

// sleep lasts until the byte is free.
func (p *place) sleep(at int64) error {
	if err := setLock(p.table.fd, unix.F_RDLCK, at, 1, true); err != nil {
		return p.table.lockError(err)
	}
	return nil
}

// step looks once, inside the gate.
func (t *ticket) step(ctx context.Context) (decision, error) {
	// mu before the gate: once Wait has returned nothing of this process is
	// inside any more, and it may be stopped without stopping others.
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.left {
		return decision{}, context.Canceled
	}
	p := t.place
	if err := p.table.gate(ctx, unix.F_WRLCK, forever); err != nil {
		return decision{}, err
	}
	tab, err := p.load(t.request.Name)
	if err != nil {
		p.table.openGate()
		return decision{}, err
	}
	if by := p.self.markIn(tab); by != "" {
		p.table.openGate()
		return decision{}, &locks.EvictedError{By: by}
	}
	do, l, err := p.look(t, tab)
	t.line.Store(p.inLine(tab))
	p.table.openGate()
	t.after = do.removed
	if l != nil {
		t.lease, l.own = l, t.own.Load()
		if !l.alone {
			l.Settle()
		}
	}
	return do, err
}

// rejoin takes a place in the file that the path leads to now, and gives up
// the one in the removed file.
func (t *ticket) rejoin(ctx context.Context) error {
	p, l, err := t.join(ctx)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.left {
		p.abandon()
		return context.Canceled
	}
	t.place.abandon()
	t.place, t.lease = p, l
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// inTheWay picks holders that keep p out as long as they all are there, few of
// them: to wait for one takes a thread. If one alone does, that is enough; there
// are never more than p's limit, since each takes up a unit of it.
func (p *place) inTheWay(holders []record) []record {
	var some []record
	var claims []locks.Claim
	for i := range holders {
		if !locks.Admits([]locks.Claim{holders[i].claim}, p.self.claim) {
			return holders[i : i+1]
		}
	}
	for _, h := range holders {
		some, claims = append(some, h), append(claims, h.claim)
		if !locks.Admits(claims, p.self.claim) {
			break
		}
	}
	return some
}

// watch sleeps until one of several holders is gone: a goroutine for each,
// which ends when its holder does. It may outlast p, so it shares the file. For
// those whose time alone is left there is a timer.
func (p *place) watch(ctx context.Context, holders []record, freed chan error) error {
	if p.watched == nil {
		p.watched = map[int64]bool{}
	}
	var look <-chan time.Time
	for _, h := range holders {
		if left := h.left(); h.ended {
			timer := time.NewTimer(min(left, holdCheck))
			defer timer.Stop()
			look = timer.C
			continue
		}
		ticket := h.claim.Ticket
		if p.watched[ticket] {
			continue
		}
		p.watched[ticket] = true
		f := p.table
		f.share()
		go func() {
			defer f.close()
			err := setLock(f.fd, unix.F_RDLCK, holdByte(ticket), 1, true)
			if err != nil {
				err = f.lockError(err)
			}
			select {
			case freed <- err:
			default:
			}
		}()
	}
	select {
	case err := <-freed:
		return err
	case <-look:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// leaveQueue drops the wait byte, which wakes the next, and with it the read
// locks that waking up has left on the description.
func (p *place) leaveQueue() {
	_ = setLock(p.table.fd, unix.F_UNLCK, waitBase, pathBase-waitBase, false)
}

// letGo drops the hold byte and the traces.
func (p *place) letGo() { _ = setLock(p.hold, unix.F_UNLCK, 0, 0, false) }

// unlock drops every lock of the place.
func (p *place) unlock() {
	if p.table != nil {
		_ = setLock(p.table.fd, unix.F_UNLCK, 0, 0, false)
	}
	if p.hold >= 0 {
		p.letGo()
	}
}

// abandon gives the place up.
func (p *place) abandon() {
	p.unlock()
	p.close()
}

// close closes the files of a place that is unlocked.
func (p *place) close() {
	p.closeTable()
	if p.hold >= 0 {
		unix.Close(p.hold)
		p.hold = -1
	}
	p.dir.close()
}

// closeTable closes what only a waiter needs.
func (p *place) closeTable() {
	if p.table != nil {
		p.table.close()
		p.table = nil
	}
}
