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
	e := s.newEntry(locks.Request{TTL: time.Second})
	go e.listen(0)
	told := 0
	for ctx.Err() == nil {
		select {
		case <-e.events:
			told++
		case <-ctx.Done():
		}
	}
	e.Close()
	if told != 1 {
		t.Errorf("told %d times of an outage, want once", told)
	}
}
