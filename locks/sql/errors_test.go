//go:build integration

package sql

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"golock/locks"
	"golock/locks/lease"
	"golock/locks/queue"
	"golock/test/testkit"
)

// passing is a dialect for which every error may pass.
func passing() Dialect {
	return Dialect{
		Listeners: 32,
		Code:      func(error) string { return "" },
		Connect: func(context.Context, *Target, string, func()) (Conn, int64, error) {
			return nil, 0, errors.New("connection refused")
		},
	}
}

// A server that said nothing is reported as that, whoever ended the attempt.
func TestNoAnswerInWords(t *testing.T) {
	t.Parallel()
	s := &Store{dialect: passing()}
	for _, cause := range []error{context.DeadlineExceeded, context.Canceled} {
		err := s.asRefusal(fmt.Errorf("read: %w", cause), lease.ForGood)
		if err.Error() != "no answer in time" || !errors.Is(err, cause) {
			t.Errorf("%v is reported as %q, want no answer in time", cause, err)
		}
	}
}

// While the server refuses connections a waiter pauses between two attempts, also one that would
// poll over a connection that it keeps.
func TestPauseInOutage(t *testing.T) {
	t.Parallel()
	s := &Store{dialect: passing(), target: &Target{waiters: 100, hosts: []string{"h"}, connectTimeout: time.Second}}
	e := s.newEntry(locks.Request{TTL: 10 * time.Second})
	e.place = 40
	if _, _, err := e.Ask(t.Context(), queue.Join); err == nil {
		t.Fatal("the server answers")
	}
	const pause = 200 * time.Millisecond
	began := time.Now()
	if _, _, err := e.Sleep(t.Context(), queue.Nap{For: pause, KeepsConnection: true}, nil); err != nil {
		t.Fatal(err)
	}
	testkit.Lasted(t, began, pause, time.Hour)
}

// A host whose commit hung is passed over once: the others are tried first.
func TestHungHost(t *testing.T) {
	for _, hosts := range []int{2, 3} {
		s := &Store{target: &Target{hosts: make([]string, hosts)}}
		s.hung.Store(1) // a commit hung at the first one
		var asked []int
		for host := s.host.Load(); len(asked) < 2*hosts; host = s.host.Load() {
			asked = append(asked, int(host)%hosts)
			s.useNextHost(host)
		}
		want := map[int][]int{2: {0, 1, 1, 0}, 3: {0, 1, 2, 1, 2, 0}}[hosts]
		if !slices.Equal(asked, want) {
			t.Errorf("%d hosts: asked %v, want %v", hosts, asked, want)
		}
	}
}
