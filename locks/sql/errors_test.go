//go:build integration

package sql

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"golock/locks"
	"golock/locks/lease"
)

// passing is a driver for which every error may pass.
type passing struct{ Driver }

func (passing) Judge(error) (Verdict, string) { return Transient, "" }

func (passing) Connect(context.Context, *Target, string) (Conn, int64, error) {
	return nil, 0, errors.New("connection refused")
}

// A server that said nothing is reported as that, whoever ended the attempt.
func TestNoAnswerInWords(t *testing.T) {
	t.Parallel()
	s := &Store{dialect: Dialect{Driver: passing{}}}
	for _, cause := range []error{context.DeadlineExceeded, context.Canceled} {
		err := s.judge(fmt.Errorf("read: %w", cause))
		if err.Error() != "no answer in time" || !errors.Is(err, cause) {
			t.Errorf("%v is reported as %q, want no answer in time", cause, err)
		}
	}
}

// While the server refuses connections a waiter pauses between two attempts, also one that would
// poll over a connection that it keeps.
func TestPauseInOutage(t *testing.T) {
	t.Parallel()
	s := &Store{dialect: Dialect{Driver: passing{}, Listeners: 32}, target: &Target{waiters: 100, hosts: []string{"h"}, connectTimeout: time.Second}}
	e := s.newEntry(locks.Request{TTL: 10 * time.Second})
	e.state.place = 40
	if _, _, err := e.Ask(t.Context(), lease.Join); err == nil {
		t.Fatal("the server answers")
	}
	const pause = 200 * time.Millisecond
	began := time.Now()
	if _, _, err := e.Sleep(t.Context(), pause, nil); err != nil {
		t.Fatal(err)
	}
	if slept := time.Since(began); slept < pause {
		t.Errorf("the waiter slept for %v, want %v", slept, pause)
	}
}
