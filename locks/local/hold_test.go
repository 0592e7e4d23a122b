package local

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"golock/locks"
)

// A daemon that the command left behind does not keep a slot that was given
// back, although it has the descriptor open.
func TestReleaseFreesTheSlotUnderAnHeir(t *testing.T) {
	s := newStore(t, t.TempDir())
	l := take(t, s, "x")
	heir, err := spawnHeir(l)
	must(t, err)
	defer reap(t, heir)
	w := queue(t, s, "x")
	refused(t, s, "x")
	release(t, l)
	release(t, w.granted())
	if state, _ := processState(fmt.Sprint(heir)); state == 0 || state == 'Z' {
		t.Fatal("the heir has ended: nothing was tested")
	}
	if got := list(t, s, "x"); len(got) != 0 {
		t.Errorf("%+v", got)
	}
	take(t, s, "x")
}

// Killed, a holder leaves the slot to what it started, and to nobody else
// before that has ended.
func TestHeirKeepsTheSlotOfAKilledHolder(t *testing.T) {
	t.Parallel()
	s := newStore(t, t.TempDir())
	c := startChild(t)
	c.ask(call{Do: "join", Dir: s.path, Name: "x", Max: 1})
	heir := c.ask(call{Do: "spawn", Dir: s.path, Name: "x"}).PID
	defer reap(t, heir)
	if e := list(t, s, "x"); len(e) != 1 || e[0].Orphaned || e[0].PID != c.pid {
		t.Errorf("before: %+v", e)
	}
	w := queue(t, s, "x")
	asleep(t, lockPath(s.path, "x"), 1)
	c.kill()
	e := list(t, s, "x")
	if len(e) != 2 || !e[0].Orphaned || e[0].PID != c.pid || !reflect.DeepEqual(e[0].Slots, []int{0}) || e[1].Orphaned {
		t.Errorf("after: %+v", e)
	}
	if busy := refused(t, s, "x"); len(busy.Holders) != 1 || !busy.Holders[0].Orphaned || busy.Waiters != 1 {
		t.Errorf("%+v", busy)
	}
	w.blocked(stillBusy / 5)
	reap(t, heir)
	release(t, w.granted())
}

// The dead among the waiters are not counted as waiting.
func TestBusyCountsTheLivingOnly(t *testing.T) {
	s := newStore(t, t.TempDir())
	take(t, s, "x")
	// Nobody sleeps on one that is behind, so nobody clears it away.
	c := startChild(t)
	c.ask(call{Do: "join", Dir: s.path, Name: "x", Max: 1, Priority: -1})
	queue(t, s, "x")
	if busy := refused(t, s, "x"); busy.Waiters != 2 {
		t.Errorf("%d waiters, want 2", busy.Waiters)
	}
	c.kill()
	if busy := refused(t, s, "x"); busy.Waiters != 1 {
		t.Errorf("%d waiters, want 1", busy.Waiters)
	}
}

// The fence grows from grant to grant, whoever is granted: another process, in
// a repaired file, in a new one.
func TestFenceGrowsOverEverything(t *testing.T) {
	s := newStore(t, t.TempDir())
	path := lockPath(s.path, "x")
	var last int64
	grows := func(what string, fence int64) {
		t.Helper()
		if fence <= last {
			t.Errorf("%s: fence %d after %d", what, fence, last)
		}
		last = fence
	}
	again := func(what string) {
		t.Helper()
		l := take(t, s, "x")
		grows(what, l.Grant().Fence)
		release(t, l)
	}
	for range 20 {
		again("the same process")
	}
	for range 2 {
		c := startChild(t)
		grows("another process", c.ask(call{Do: "join", Dir: s.path, Name: "x", Max: 1}).Fence)
		c.kill()
	}
	must(t, os.Truncate(path, 100))
	again("a repaired file")
	must(t, os.Remove(path))
	again("a new file")

	// A clock that was set back does not count: the last fence does.
	ahead := last + 3600e6
	text, err := os.ReadFile(path)
	must(t, err)
	h, err := decodeHeader(text)
	must(t, err)
	h.fence = ahead
	patched(0, h.encode())(t, path)
	last = ahead
	again("a clock behind the last fence")
	if last != ahead+1 {
		t.Errorf("fence %d after %d", last, ahead)
	}
}

// Random weights come and go: slots are always the lowest free ones, never held
// twice, and stay what they were, in the grant and in what is shown.
func TestSlotsAreTheLowestFreeAndStable(t *testing.T) {
	t.Parallel()
	s := newStore(t, t.TempDir())
	random := rand.New(rand.NewPCG(1, 2))
	held := map[*lease][]int{}
	taken := map[int]bool{}
	for round := range 400 {
		if len(held) > 20 || (len(held) > 0 && random.IntN(2) == 0) {
			for l, slots := range held { // in random order
				if got := l.Grant().Slots; !reflect.DeepEqual(got, slots) {
					t.Fatalf("slots %v have become %v", slots, got)
				}
				for _, n := range slots {
					delete(taken, n)
				}
				release(t, l)
				delete(held, l)
				break
			}
			continue
		}
		n := 1 + random.IntN(9)
		want := locks.FreeSlots(func(n int) bool { return taken[n] }, n)
		l := take(t, s, "x", limit(0), weight(n))
		if got := l.Grant().Slots; !reflect.DeepEqual(got, want) {
			t.Fatalf("round %d: slots %v, want %v", round, got, want)
		}
		held[l] = want
		for _, n := range want {
			taken[n] = true
		}
	}
	shown := list(t, s, "x")
	if len(shown) != len(held) {
		t.Fatalf("%d entries, want %d", len(shown), len(held))
	}
	if !slices.IsSortedFunc(shown, func(a, b locks.Entry) int { return a.Slots[0] - b.Slots[0] }) {
		t.Error("the holders are not shown in the order of their slots")
	}
	for l, slots := range held {
		i := slices.IndexFunc(shown, func(e locks.Entry) bool { return e.Ref == l.Grant().Ref })
		if i < 0 || !reflect.DeepEqual(shown[i].Slots, slots) {
			t.Errorf("%v is not shown", slots)
		}
	}
}

// The heaviest entry whose slots lie as scattered as can be.
func TestHeaviestEntryWithScatteredSlots(t *testing.T) {
	s := newStore(t, t.TempDir())
	var singles []*lease
	for range 2 * maxUnits {
		singles = append(singles, take(t, s, "x", limit(0)))
	}
	var want []int
	for i, l := range singles {
		if i%2 == 1 {
			release(t, l)
			want = append(want, i)
		}
	}
	l := take(t, s, "x", limit(0), weight(maxUnits), command("make", "-j256"))
	if got := l.Grant().Slots; !reflect.DeepEqual(got, want) {
		t.Errorf("slots %v", got)
	}
	shown := list(t, s, "x")
	i := slices.IndexFunc(shown, func(e locks.Entry) bool { return e.Ref == l.Grant().Ref })
	if i < 0 || !reflect.DeepEqual(shown[i].Slots, want) || len(shown[i].Command) == 0 || shown[i].Command[0] != "make" {
		t.Errorf("entry %d of %d", i, len(shown))
	}
	release(t, singles[0])
	if got := take(t, s, "x", limit(0)).Grant().Slots; got[0] != 0 {
		t.Errorf("slots %v", got)
	}
}

// A process that was killed after it wrote the header and before it wrote its
// record has used a ticket up. Nobody gets it again.
func TestTicketsAreNeverGivenTwice(t *testing.T) {
	s := newStore(t, t.TempDir())
	path := lockPath(s.path, "x")
	next := func() int64 {
		t.Helper()
		text, err := os.ReadFile(path)
		must(t, err)
		h, err := decodeHeader(text)
		must(t, err)
		return h.next
	}
	release(t, take(t, s, "x"))
	holder := take(t, s, "x")
	seen := map[int64]bool{}
	for range 5 {
		w := queue(t, s, "x")
		for _, e := range list(t, s, "x") {
			seen[e.Claim.Ticket] = true
		}
		w.leave()

		// As far as the killed one came.
		text, err := os.ReadFile(path)
		must(t, err)
		h, err := decodeHeader(text)
		must(t, err)
		seen[h.next] = true
		h.next++
		patched(0, h.encode())(t, path)

		w = queue(t, s, "x")
		for _, e := range list(t, s, "x") {
			if e.State == locks.Waiting && seen[e.Claim.Ticket] {
				t.Errorf("ticket %d was given twice", e.Claim.Ticket)
			}
			seen[e.Claim.Ticket] = true
		}
		w.leave()
	}
	release(t, holder)
	was := next()
	for range 5 {
		release(t, take(t, s, "x"))
		if n := next(); n <= was {
			t.Errorf("next ticket %d after %d", n, was)
		} else {
			was = n
		}
	}
	refusedBefore := next()
	holder = take(t, s, "x")
	refused(t, s, "x")
	if n := next(); n != refusedBefore+1 {
		t.Errorf("one who was refused changed the table: next ticket %d, want %d", n, refusedBefore+1)
	}
	release(t, holder)
}

// The header is on the disk before the record: what a process leaves that could
// not write the record is a number that is used up, and no record.
func TestHeaderIsWrittenBeforeTheRecord(t *testing.T) {
	s := newStore(t, t.TempDir())
	release(t, take(t, s, "x"))
	path := lockPath(s.path, "x")
	patched(pageSize, make([]byte, recordSize))(t, path) // nothing is to be freed
	before, err := os.ReadFile(path)
	must(t, err)
	was, err := decodeHeader(before)
	must(t, err)
	c := startChild(t)
	c.ask(call{Do: "fsize", Number: pageSize}) // the header fits, no record does
	if a := c.try(call{Do: "join", Dir: s.path, Name: "x", Max: 1}); a.Err == "" {
		t.Fatal("granted without a record")
	}
	after, err := os.ReadFile(path)
	must(t, err)
	is, err := decodeHeader(after)
	must(t, err)
	if is.next != was.next+1 || is.fence <= was.fence {
		t.Errorf("next ticket %d after %d, fence %d after %d", is.next, was.next, is.fence, was.fence)
	}
	if !allZero(after[pageSize:]) {
		t.Error("a record was written")
	}
	if heldBytes(t, path) {
		t.Error("something is locked after the error")
	}
	take(t, s, "x")
}

// The table's description, through which gate and table are used, is not
// inherited by anything; what is inherited carries the slot alone.
func TestOnlyTheSlotIsInherited(t *testing.T) {
	s := newStore(t, t.TempDir())
	l := take(t, s, "x")
	heir, err := spawnHeir(l)
	must(t, err)
	defer reap(t, heir)
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", heir))
	must(t, err)
	var open []string
	for _, f := range files {
		if to, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", heir, f.Name())); to == lockPath(s.path, "x") || to == s.path {
			open = append(open, to)
		}
	}
	if !reflect.DeepEqual(open, []string{lockPath(s.path, "x"), s.path}) {
		t.Errorf("the heir has open %v", open)
	}
	for _, fd := range l.Files() {
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("descriptor %d: flags %d, %v", fd, flags, err)
		}
	}
	// With the heir alive, others come and go.
	w := queue(t, s, "x")
	release(t, l)
	release(t, w.granted())
	must(t, exec.Command("true").Run())
	take(t, s, "x")
}
