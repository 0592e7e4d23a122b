//go:build integration

package sql

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"golock/locks"
	"golock/locks/lease"
	"golock/locks/network"
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
	s := &Store{dialect: passing(), target: &Target{Options: network.NewOptions(), waiters: 100, hosts: []string{"h"}, connectTimeout: time.Second}}
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

// answerer is a connection that answers everything with one error.
type answerer struct {
	Conn // nil
	err  error
}

func (a answerer) Run(context.Context, string) ([]Rows, error) { return nil, a.err }
func (answerer) Close()                                        {}

// What a kept connection comes to says something about its own host, also if others use another one meanwhile.
func TestHostOfAKeptConnection(t *testing.T) {
	d := passing()
	d.Code = func(err error) string { return err.Error() }
	d.Errors = []Meaning{Errors(Standby, "", "read-only"), Errors(Refused, "", "no right")}
	answers := map[string]error{"first": errors.New("read-only"), "second": errors.New("no right")}
	var asked []string
	d.Connect = func(_ context.Context, _ *Target, host string, _ func()) (Conn, int64, error) {
		asked = append(asked, host)
		return answerer{err: answers[host]}, 0, nil
	}
	s := &Store{dialect: d, target: &Target{Options: network.NewOptions(), hosts: []string{"first", "second"}, connectTimeout: time.Minute}}
	e := s.newEntry(locks.Request{TTL: 10 * time.Second})
	testkit.Must(t, e.open(t.Context()))
	s.useNextHost(0) // another session has found that the first one may not write
	_, _, err := e.Ask(t.Context(), queue.Join)
	if want := []string{"first", "second"}; !slices.Equal(asked, want) {
		t.Errorf("asked %q, want %q: %v", asked, want, err)
	}
}

// Of two hosts that are far away one fails for a moment. An attempt still has the time to connect to the other.
func TestFarHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const trip = 280 * time.Millisecond
		d := passing()
		d.Code = func(err error) string { return err.Error() }
		d.Connect = func(ctx context.Context, _ *Target, _ string, _ func()) (Conn, int64, error) {
			const trips = 8 // with TLS and a password
			select {
			case <-time.After(trips * trip):
				return answerer{err: errors.New("connected")}, 0, nil
			case <-ctx.Done():
				return nil, 0, ctx.Err()
			}
		}
		target := &Target{Options: network.NewOptions(), hosts: []string{"first", "second"}, connectTimeout: time.Minute}
		target.TLS, target.Password = true, "x"
		s := &Store{dialect: d, target: target}
		e := s.newEntry(locks.Request{TTL: 30 * time.Second})
		e.row.ID, e.row.Claim.Ticket = "0123456789abcdef0123456789abcdef", 7 // it waits already
		for range 8 {
			target.Trips.Note(trip)
		}
		s.useNextHost(0)
		_, _, err := e.Ask(t.Context(), queue.Join)
		if err == nil || err.Error() != "connected" {
			t.Errorf("%v: expected a connection", err)
		}
	})
}
