package redis

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"golock/locks"
	"golock/locks/lease"
	"golock/locks/queue"
)

// SetClock replaces a store's clock. It must not have been used yet.
func SetClock(s *Store, c locks.Clock) { s.clock = c }

// MaxGrantAge is how old an Ask may be when it is answered by a published grant.
var MaxGrantAge = maxGrantAge

// A record comes back as it was written. Numbers that somebody else has written into one
// are not cut to fit.
func TestRecord(t *testing.T) {
	r := newRecord(locks.Request{
		TTL: time.Second, Claim: locks.Claim{Weight: 1, Priority: -3}, Replace: locks.ReplaceRunning, Hold: 1500 * time.Microsecond,
	})
	r.Ticket = 9007199254740991
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var back record
	if err := json.Unmarshal(text, &back); err != nil || !reflect.DeepEqual(&back, r) || back.Hold != 2 {
		t.Errorf("%s is read as %+v, %v", text, back, err)
	}
	for _, bad := range []string{
		`{"weight":9223372036854775808}`, `{"weight":1e30}`, `{"max":"1"}`, `{"priority":"99999999999999999999"}`,
		`{"fence":1}`, `7`,
	} {
		if err := json.Unmarshal([]byte(bad), &back); err == nil {
			t.Errorf("%s is accepted: %+v", bad, back)
		}
	}
}

// A reply sets no field of an answer that only golock itself fills.
func TestReplyFields(t *testing.T) {
	var r reply
	text := `{"verdict":"busy","waiters":2,"grant":{"Fence":7},"ttl":1,"holders":[{}],"replaced":[{}],"doubtful":true}`
	err := json.Unmarshal([]byte(text), &r)
	if want := (lease.Answer{Outcome: queue.Outcome{Verdict: queue.Busy, Waiters: 2}}); err != nil || !reflect.DeepEqual(r.Answer, want) {
		t.Errorf("%+v, %v", r.Answer, err)
	}
}
