package redis

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
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

// No answer lets a run begin or go on without a record with slots, and what others have written is told.
func TestReplyRecords(t *testing.T) {
	const owner = `"owner":{"host":"h","pid":1,"uid":0}`
	record := func(rest string) string {
		return `{"ttl":1000,"weight":1,"max":1,"priority":"0","order":"7fffffffffffffff","ticket":"0","fence":"0",` +
			`"since":"0","join":0,"replace":"","hold":0,` + rest + `}`
	}
	const id = "00000000000000000000000000000001"
	for _, tt := range []struct{ text, want string }{
		{`{"verdict":"held"}`, "a damaged answer"}, {`{"verdict":"granted"}`, "a damaged answer"}, {`{"verdict":"waiting"}`, "a damaged answer"},
		{`{"verdict":"granted","record":` + record(`"slots":"",`+owner) + `}`, "a damaged answer"},
		{`{"verdict":"held","record":null}`, "ttl 0"},
		{`{"verdict":"held","record":` + record(`"slots":"0","owner":5`) + `}`, id},
		{`{"verdict":"busy","entries":[{"state":"holding","id":"` + id + `","record":` + record(`"slots":"0","owner":5`) + `}]}`, id},
		{`{"verdict":"busy","entries":[{"state":"holding","id":"` + id + `","record":` + record(`"slots":"",`+owner) + `}]}`, id},
		{`{"verdict":"granted","record":` + record(`"slots":"0",`+owner) + `}`, ""},
		{`{"verdict":"waiting","record":` + record(`"slots":"",`+owner) + `}`, ""},
	} {
		var r reply
		if err := decode(tt.text, &r); err != nil {
			t.Errorf("%s: %v", tt.text, err)
		}
		stored, _, err := r.read(call{key: locks.KeyOf("n"), ID: id, Name: "n"})
		isGood := err == nil && stored != nil
		if isGood != (tt.want == "") || !strings.Contains(fmt.Sprint(err), tt.want) || !lease.IsTemporary(err) {
			t.Errorf("%s: %v, want %q", tt.text, err, tt.want)
		}
	}
}

// CheckRecord says what golock has against the record of a holder.
func CheckRecord(text string) error {
	_, err := readRecord([]byte(text), true)
	return err
}

// ListRaw lists a lock as the script does: what it has against entries, and the records of all others,
// by their IDs.
func ListRaw(s *Store, name string) (flaws, records map[string]string, err error) {
	r, err := ask(context.Background(), s, s.runScript(call{key: locks.KeyOf(name), Mode: "list", Name: name}))
	flaws, records = map[string]string{}, map[string]string{}
	for _, f := range r.Flaws {
		flaws[f.ID] = f.Why
	}
	for _, l := range r.Entries {
		records[l.ID] = string(l.Record)
	}
	return flaws, records, err
}
