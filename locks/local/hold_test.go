package local

import (
	"bytes"
	"os"
	"testing"

	"golock/locks/locktest"
	"golock/test/testkit"
)

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
	locktest.Release(t, take(t, s, "x"))
	h := headerOf(t, path)
	h.fence += 3600e6
	patched(0, h.encode())(t, path)
	if got := take(t, s, "x").Grant().Fence; got != h.fence+1 {
		t.Errorf("fence %d after %d", got, h.fence)
	}
}

// The header is on the disk before the record: what a process leaves that could not write the
// record, or was killed before, is a ticket that is used up, and no record. Nobody gets that
// ticket again. Who is refused uses none.
func TestHeaderIsWrittenBeforeTheRecord(t *testing.T) {
	s := New(t.TempDir())
	locktest.Release(t, take(t, s, "x"))
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
	if e := locktest.List(t, s, "x"); len(e) != 1 || e[0].Claim.Ticket != was.next+1 {
		t.Errorf("%+v, want a ticket after %d, which is used up", e, was.next)
	}
	was = headerOf(t, path)
	locktest.ExpectBusy(t, s, "x")
	if now := headerOf(t, path); now != was {
		t.Errorf("one who was refused changed the table: %+v, was %+v", now, was)
	}
}
