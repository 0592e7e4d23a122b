package redis

import (
	"context"
	"testing"
	"time"

	"golock/locks"
	"golock/locks/lease"
)

// A listener tells of an outage once, however often it tries to connect.
func TestOutageIsToldOnce(t *testing.T) {
	t.Parallel()
	s, err := Open("redis://127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 4*lease.RetryPause)
	defer cancel()
	var told []notice
	s.newEntry(locks.Request{TTL: time.Second}).listen(ctx, 0, func(n notice) { told = append(told, n) })
	if len(told) != 1 || told[0].kind != disconnected {
		t.Errorf("told %+v, want that it is disconnected, once", told)
	}
}
