package local

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"golock/locks"
	. "golock/locks/locktest"
	"golock/test/testkit"
)

// Killed, a holder leaves the slot to what it started, and to nobody else
// before that has ended.
func TestHeirKeepsTheSlotOfAKilledHolder(t *testing.T) {
	t.Parallel()
	s := New(t.TempDir())
	c := startChild(t)
	c.Ask(call{Do: "join", Dir: s.path, Name: "x", Max: 1})
	heir := c.Ask(call{Do: "spawn", Dir: s.path, Name: "x"}).PID
	defer reap(t, heir)
	if e := List(t, s, "x"); len(e) != 1 || e[0].Orphaned || e[0].PID != c.PID {
		t.Errorf("before: %+v", e)
	}
	w := queue(t, s, "x")
	awaitSleepers(t, lockPath(s.path, "x"), 1)
	c.Kill()
	e := List(t, s, "x")
	if len(e) != 2 || !e[0].Orphaned || e[0].PID != c.PID || !reflect.DeepEqual(e[0].Slots, []int{0}) || e[1].Orphaned {
		t.Errorf("after: %+v", e)
	}
	if busy := Refused(t, s, "x"); len(busy.Holders) != 1 || !busy.Holders[0].Orphaned || busy.Waiters != 1 {
		t.Errorf("%+v", busy)
	}
	sweep(t, s, 0, 0)
	staysQueued(w, stillBusy/5)
	reap(t, heir)
	Release(t, w.Granted())
}

// The dead among the waiters are not counted as waiting.
func TestBusyCountsTheLivingOnly(t *testing.T) {
	s := New(t.TempDir())
	take(t, s, "x")
	// Nobody sleeps on one that is behind, so nobody clears it away.
	c := startChild(t)
	c.Ask(call{Do: "join", Dir: s.path, Name: "x", Max: 1, Priority: -1})
	queue(t, s, "x")
	if busy := Refused(t, s, "x"); busy.Waiters != 2 {
		t.Errorf("%d waiters, want 2", busy.Waiters)
	}
	c.Kill()
	if busy := Refused(t, s, "x"); busy.Waiters != 1 {
		t.Errorf("%d waiters, want 1", busy.Waiters)
	}
}

func headerOf(t *testing.T, path string) header {
	t.Helper()
	text, err := os.ReadFile(path)
	testkit.Must(t, err)
	h, err := decodeHeader(text)
	testkit.Must(t, err)
	return h
}

// A clock that was set back does not count: the last fence does.
func TestFenceGrowsWhenTheClockIsSetBack(t *testing.T) {
	s := New(t.TempDir())
	path := lockPath(s.path, "x")
	Release(t, take(t, s, "x"))
	h := headerOf(t, path)
	h.fence += 3600e6
	patched(0, h.encode())(t, path)
	if got := take(t, s, "x").Grant().Fence; got != h.fence+1 {
		t.Errorf("fence %d after %d", got, h.fence)
	}
}

// The heaviest entry whose slots lie as scattered as can be.
func TestHeaviestEntryWithScatteredSlots(t *testing.T) {
	s := New(t.TempDir())
	var singles []*lease
	for range 2 * maxUnits {
		singles = append(singles, take(t, s, "x", Limit(0)))
	}
	var want []int
	for i, l := range singles {
		if i%2 == 1 {
			Release(t, l)
			want = append(want, i)
		}
	}
	l := take(t, s, "x", Limit(0), Weight(maxUnits), command("make", "-j256"))
	if got := l.Grant().Slots; !reflect.DeepEqual(got, want) {
		t.Errorf("slots %v", got)
	}
	shown := List(t, s, "x")
	i := slices.IndexFunc(shown, func(e locks.Entry) bool { return e.Ref == l.Grant().Ref })
	if i < 0 || !reflect.DeepEqual(shown[i].Slots, want) || len(shown[i].Command) == 0 || shown[i].Command[0] != "make" {
		t.Errorf("entry %d of %d", i, len(shown))
	}
	Release(t, singles[0])
	if got := take(t, s, "x", Limit(0)).Grant().Slots; got[0] != 0 {
		t.Errorf("slots %v", got)
	}
}

// A process that was killed after it wrote the header and before it wrote its record has
// used a ticket up. Nobody gets it again. Who is refused uses none.
func TestTicketsAreNeverGivenTwice(t *testing.T) {
	s := New(t.TempDir())
	path := lockPath(s.path, "x")
	take(t, s, "x")
	killed := headerOf(t, path)
	killed.next++ // as far as it came
	patched(0, killed.encode())(t, path)
	queue(t, s, "x")
	was := headerOf(t, path)
	if e := List(t, s, "x"); len(e) != 2 || e[1].Claim.Ticket != killed.next || was.next != killed.next+1 {
		t.Errorf("%+v, next ticket %d after %d", e, was.next, killed.next)
	}
	Refused(t, s, "x")
	if now := headerOf(t, path); now != was {
		t.Errorf("one who was refused changed the table: %+v, was %+v", now, was)
	}
}

// The header is on the disk before the record: what a process leaves that could
// not write the record is a number that is used up, and no record.
func TestHeaderIsWrittenBeforeTheRecord(t *testing.T) {
	s := New(t.TempDir())
	Release(t, take(t, s, "x"))
	path := lockPath(s.path, "x")
	patched(pageSize, make([]byte, recordSize))(t, path) // nothing is to be freed
	was := headerOf(t, path)
	c := startChild(t)
	c.Ask(call{Do: "fsize", Number: pageSize}) // the header fits, no record does
	if a := c.Try(call{Do: "join", Dir: s.path, Name: "x", Max: 1}); a.Err == "" {
		t.Fatal("granted without a record")
	}
	after, err := os.ReadFile(path)
	testkit.Must(t, err)
	if now := headerOf(t, path); now.next != was.next+1 || now.fence <= was.fence {
		t.Errorf("next ticket %d after %d, fence %d after %d", now.next, was.next, now.fence, was.fence)
	}
	if bytes.Trim(after[pageSize:], "\x00") != nil {
		t.Error("a record was written")
	}
	if isInUse(t, path) {
		t.Error("something is locked after the error")
	}
	take(t, s, "x")
}

// The table's description, through which gate and table are used, is not
// inherited by anything; what is inherited carries the slot alone.
func TestOnlyTheSlotIsInherited(t *testing.T) {
	s := New(t.TempDir())
	l := take(t, s, "x")
	heir, err := testkit.SpawnHeir(l.Files())
	testkit.Must(t, err)
	defer reap(t, heir)
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", heir))
	testkit.Must(t, err)
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
	Release(t, l)
	Release(t, w.Granted())
	testkit.Must(t, exec.Command("true").Run())
	take(t, s, "x")
}
