//go:build integration

package sql

import (
	"testing"
	"time"

	"golock/locks"
)

// Who has no connection comes again in time, also at the moment in which
// nobody holds and nobody has been granted anything for long, or ever.
func TestPollPause(t *testing.T) {
	now := time.Now().UnixMicro()
	holder := row{state: holding, claim: locks.Claim{Weight: 1, Max: 1}, since: now - micros(time.Hour), ends: now + 1}
	for _, test := range []struct {
		what    string
		holders []row
		granted int64
		ahead   int
		least   time.Duration
		most    time.Duration
	}{
		{"between two grants, the first ones of all", nil, 0, 17, shortestPoll, 200 * time.Millisecond},
		{"between two grants", nil, now - micros(time.Hour), 40, shortestPoll, 500 * time.Millisecond},
		{"a quick burst", []row{{state: holding, since: now - 5000}}, now - 5000, 17, shortestPoll, 200 * time.Millisecond},
		{"nothing has moved for an hour, near", []row{holder}, 0, 17, time.Second, 2 * time.Second},
		{"nothing has moved for an hour, far", []row{holder}, 0, 300, 10 * time.Second, 10 * time.Second},
	} {
		s := &step{store: &Store{target: &Target{waiters: 16}}, q: &question{listens: true}, v: &view{facts: facts{now: now}}, holders: test.holders}
		s.name.granted = test.granted
		if got := s.pollPause(test.ahead, 30*time.Second); got < test.least || got > test.most {
			t.Errorf("%s: %v, want %v to %v", test.what, got, test.least, test.most)
		}
	}
}
