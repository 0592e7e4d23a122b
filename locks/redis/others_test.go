//go:build integration

package redis_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"golock/locks"
	"golock/locks/locktest"
	"golock/locks/redis"
	"golock/locks/redis/redistest"
	"golock/test/testkit"
)

// keeper is a store on the shared server whose keys others change.
type keeper struct {
	*redis.Store
	t      *testing.T
	server *redistest.Server
	url    string
	prefix string
}

func openKeeper(t *testing.T) *keeper {
	t.Helper()
	url := redistest.StoreURL(t)
	_, option, _ := strings.Cut(url, "prefix=")
	prefix, _, _ := strings.Cut(option, "&")
	return &keeper{open(t, url), t, redistest.Shared(t), url, prefix}
}

// key is one of a lock, by its last letter.
func (k *keeper) key(name, letter string) string {
	return k.prefix + ":{" + locks.KeyOf(name).String() + "}:" + letter
}

// fields are those of an entry's record.
func (k *keeper) fields(ref locks.Ref, name string) (all map[string]json.RawMessage) {
	k.t.Helper()
	text, _ := k.server.Do("HGET", k.key(name, "e"), ref.ID.String()).(string)
	testkit.Must(k.t, json.Unmarshal([]byte(text), &all))
	return all
}

// change changes a field of an entry's record. The field "@" is when its lease ends if it has a hold.
func (k *keeper) change(ref locks.Ref, name, field, value string) {
	k.t.Helper()
	if field == "@" {
		k.server.Do("HSET", k.key(name, "e"), ref.ID.String()+"@", value)
		return
	}
	all := k.fields(ref, name)
	all[field] = json.RawMessage(value)
	k.server.Do("HSET", k.key(name, "e"), ref.ID.String(), toJSON(k.t, all))
}

// end is when the time of a holder is over, in ms.
func (k *keeper) end(ref locks.Ref, name string) float64 {
	k.t.Helper()
	text, _ := k.server.Do("ZSCORE", k.key(name, "h"), ref.ID.String()).(string)
	end, err := strconv.ParseFloat(text, 64)
	testkit.Must(k.t, err)
	return end
}

// isInvalid fails the test unless an error names an invalid entry.
func isInvalid(t *testing.T, what string, err error, ref locks.Ref) {
	t.Helper()
	if all := locks.AsInvalid(err); len(all) == 0 || all[0].Ref != ref {
		t.Errorf("%s: %v, want that %s is invalid", what, err, ref)
	}
}

// The script and golock check the same fields of a record in the same way. What passes the script
// golock can read: nothing in a record ends a run that an outage would not end.
func TestRecordChecks(t *testing.T) {
	t.Parallel()
	k := openKeeper(t)
	holder := locktest.AcquireAtOnce(t, k, "n")
	const (
		good    = iota
		bad     // for both
		strange // golock would take it for something else, which the script knows
	)
	rows := []struct {
		kind   int
		field  string
		values string // separated by blanks
	}{
		{good, "weight", `1`}, {bad, "weight", `0 -5 65537 1.5 "1" true [] 1e300 2`},
		{good, "max", `0 1 2147483647`}, {bad, "max", `-1 2147483648 "1"`},
		{good, "ttl", `1 315360000000`}, {bad, "ttl", `0 -1 315360000001 1e300 "1"`},
		{good, "hold", `0 9223372036855`}, {bad, "hold", `-1 9223372036856 0.5 "0"`},
		{good, "join", `0 90000000000000`}, {bad, "join", `-1 90000000000001 1e15 0.5 "0"`},
		{good, "ticket", `"0" "9000000000000000"`}, {bad, "ticket", `"-1" "x" "" 5 "9000000000000001"`}, {strange, "ticket", `"5"`},
		{good, "fence", `"0" "9000000000000000"`}, {bad, "fence", `"-1" "x" "" 5 "9000000000000001"`}, {strange, "fence", `"5"`},
		{good, "since", `"0" "9000000000000000"`}, {bad, "since", `"-1" "x" "" 5 "9000000000000001"`}, {strange, "since", `null`},
		{good, "priority", `"0" "-7" "2147483647" "-2147483648"`},
		{bad, "priority", `"x" "" 5 "2147483648" "-2147483649" "1.5" "0x10" {}`}, {strange, "priority", `null`},
		{good, "order", `"00000000000000ff"`}, {bad, "order", `"" 5 "ff" "7ffffffffffffff" "000000000000000g"`},
		{good, "replace", `"" "waiting" "running"`}, {bad, "replace", `"all" 5`}, {strange, "replace", `null`},
		{good, "slots", `"0" "0-0" "00"`}, {bad, "slots", `"" 5 "1" "0,0" "0-1" "x" "-1" "0," "9223372036854775807"`},
		{bad, "owner", `5 "x" [1]`}, {strange, "owner", `null {} []`}, {bad, "OWNER", `5`}, {strange, "MAX", `7`},
		{good, "owner.host", `"" "x"`}, {bad, "owner.host", `5 []`}, {strange, "owner.host", `null`},
		{good, "owner.pid", `0 2147483647`}, {bad, "owner.pid", `"1" -1 2147483648 1e15 0.5`},
		{good, "owner.uid", `-2147483648 4294967295`}, {bad, "owner.uid", `"1" 4294967296 0.5`},
		{good, "owner.user", `"x"`}, {bad, "owner.user", `5`},
		{good, "owner.runs", `true`}, {bad, "owner.runs", `"yes" 1`},
		{good, "owner.command", `["a","b"]`}, {bad, "owner.command", `"a" [5] {"a":"b"} [["a"]]`}, {strange, "owner.command", `[] ["a",null]`},
		{good, "later", `{"a":[1]}`}, {good, "owner.later", `[1]`}, {strange, "later", `1e400`},
		{bad, "", `7 { [1] x`}, {strange, "", `{}`},
	}
	type record struct {
		kind int
		what string
		text string
	}
	all := map[string]record{}
	for _, row := range rows {
		for value := range strings.FieldsSeq(row.values) {
			r := record{row.kind, row.field + " " + value, value}
			if outer, inner, isNested := strings.Cut(row.field, "."); isNested {
				fields := k.fields(holder.Grant().Ref, "n")
				var owner map[string]json.RawMessage
				testkit.Must(t, json.Unmarshal(fields[outer], &owner))
				owner[inner] = json.RawMessage(value)
				fields[outer] = json.RawMessage(toJSON(t, owner))
				r.text = toJSON(t, fields)
			} else if outer != "" {
				fields := k.fields(holder.Grant().Ref, "n")
				fields[outer] = json.RawMessage(value)
				r.text = toJSON(t, fields)
			}
			id := fmt.Sprintf("%032x", len(all)+1)
			all[id] = r
			k.server.Do("HSET", k.key("n", "e"), id, r.text)
			k.server.Do("ZADD", k.key("n", "h"), fmt.Sprint(time.Now().Add(time.Hour).UnixMilli()), id)
		}
	}
	flaws, records, err := redis.ListRaw(k.Store, "n")
	testkit.Must(t, err)
	for id, r := range all {
		why, isFlawed := flaws[id]
		stored, isListed := records[id]
		if isFlawed == (r.kind == good) || isListed == isFlawed {
			t.Errorf("%s: the script says %q", r.what, why)
		}
		if err := redis.CheckRecord(r.text); r.kind != strange && (err == nil) != (r.kind == good) {
			t.Errorf("%s: golock says %v", r.what, err)
		}
		if err := redis.CheckRecord(stored); isListed && err != nil {
			t.Errorf("%s: golock says %v of what the script gives", r.what, err)
		}
	}
}

// Whatever somebody writes into the record of a holder, a newcomer is told, neither a clean nor a break
// shortens its lease, and its next renewal writes it again.
func TestHolderIsRestored(t *testing.T) {
	t.Parallel()
	k := openKeeper(t)
	for _, c := range []struct{ field, value string }{
		{"weight", "-5"}, {"priority", `"x"`}, {"owner", "5"}, {"slots", `""`}, {"hold", "-1"}, {"ttl", "0"}, {"since", "7"},
	} {
		for i, hold := range []time.Duration{0, 4 * time.Minute} {
			name := fmt.Sprint(c.field, i)
			holder := locktest.AcquireAtOnce(t, k, name, locktest.Limit(2), locktest.TTL(10*time.Minute), locktest.Hold(hold))
			ref := holder.Grant().Ref
			before := k.end(ref, name)
			k.change(ref, name, c.field, c.value)
			isInvalid(t, name+": a newcomer", locktest.ExpectJoinError(t, k, name, locktest.Limit(2)), ref)
			_, err := k.Sweep(background, name, 0)
			isInvalid(t, name+": a clean", err, ref)
			if after := k.end(ref, name); after != before {
				t.Errorf("%s: a clean moves the end by %v ms", name, after-before)
			}
			locktest.Renew(t, holder)
			if second := locktest.AcquireAtOnce(t, k, name, locktest.Limit(2)); second.Grant().Slots[0] != 1 {
				t.Errorf("%s: slots %v beside %v", name, second.Grant().Slots, holder.Grant().Slots)
			}
			k.change(ref, name, c.field, c.value)
			before = k.end(ref, name)
			testkit.Must(t, k.Evict(background, []locks.Ref{ref}, "user anna")[0])
			if after := k.end(ref, name); after != before {
				t.Errorf("%s: a break moves the end by %v ms", name, after-before)
			}
			var evicted *locks.EvictedError
			if err := locktest.TryRenew(holder); !errors.As(err, &evicted) {
				t.Errorf("%s: Renew = %v after a break", name, err)
			}
		}
	}
}

// A lease that does not end gets an end that its holder reaches, whatever else is wrong with it.
func TestEndlessLease(t *testing.T) {
	t.Parallel()
	k := openKeeper(t)
	const ttl = 10 * time.Minute
	for _, change := range []string{"", "weight", "all"} {
		for _, isBreak := range []bool{false, true} {
			name := fmt.Sprint("n", change, isBreak)
			ref := locktest.AcquireAtOnce(t, k, name, locktest.TTL(ttl)).Grant().Ref
			before := k.end(ref, name)
			k.server.Do("ZADD", k.key(name, "h"), "inf", ref.ID.String())
			most := before + float64(testkit.Patience.Milliseconds())
			switch change {
			case "weight":
				k.change(ref, name, "weight", "-5")
			case "all":
				k.server.Do("HSET", k.key(name, "e"), ref.ID.String(), "{")
				most += float64(10 * ttl.Milliseconds())
			}
			if isBreak {
				testkit.Must(t, k.Evict(background, []locks.Ref{ref}, "x")[0])
			} else {
				_, _ = k.Sweep(background, name, 0) // it says what is invalid
			}
			if after := k.end(ref, name); after < before || after > most {
				t.Errorf("%s: it ends %v ms later than its lease", name, after-before)
			}
		}
	}
}

// The server's clock goes back behind the moments that are stored: entries stay valid, and a quarantine
// that would last for ever begins anew.
func TestServerClockGoesBack(t *testing.T) {
	t.Parallel()
	k := openKeeper(t)
	holder := locktest.AcquireAtOnce(t, k, "n", locktest.Limit(3))
	k.change(holder.Grant().Ref, "n", "join", fmt.Sprint(time.Now().Add(time.Hour).UnixMilli()))
	locktest.AcquireAtOnce(t, k, "n", locktest.Limit(3))
	for _, quiet := range []string{"1e15", "inf", "nan"} {
		k.server.Do("HSET", k.key("n", "s"), "quiet", quiet)
		locktest.Release(t, locktest.AcquireAtOnce(t, k, "n", locktest.Limit(3)))
		text, _ := k.server.Do("HGET", k.key("n", "s"), "quiet").(string)
		if end, err := strconv.ParseFloat(text, 64); err != nil || end > float64(time.Now().Add(time.Hour).UnixMilli()) {
			t.Errorf("quiet %s has become %s", quiet, text)
		}
	}
}

// A grant that its caller does not know of, and that has lost its slots, is made again.
func TestGrantWithoutSlotsIsMadeAgain(t *testing.T) {
	t.Parallel()
	k := openKeeper(t)
	for _, c := range []struct{ field, value string }{{"slots", `""`}, {"priority", `"x"`}} {
		r := locktest.NewRequest(t, c.field)
		_, err := k.Join(background, r) // and the answer is lost
		testkit.Must(t, err)
		k.change(r.Ref, c.field, c.field, c.value)
		again, err := open(t, k.url).Join(background, r)
		testkit.Must(t, err)
		if again.Queued() {
			t.Errorf("%s: it is queued", c.field)
		}
		locktest.ExpectEntries(t, k, c.field, locktest.Counts{Holding: 1})
	}
}

// A hold outlasts what others write into the record, and a join that comes late.
func TestHoldOutlastsOthers(t *testing.T) {
	t.Parallel()
	k := openKeeper(t)
	for _, c := range []struct{ field, value string }{{"weight", "-5"}, {"hold", "-1"}, {"hold", "0.5"}, {"owner", "5"}, {"@", "x"}} {
		for _, isAttached := range []bool{false, true} {
			if isAttached && c.field == "hold" { // nobody knows it
				continue
			}
			name := fmt.Sprint(c.field, c.value, isAttached)
			l := locktest.AcquireAtOnce(t, k, name, locktest.Hold(4*time.Minute))
			ref := l.Grant().Ref
			k.change(ref, name, c.field, c.value)
			if c.field == "@" {
				locktest.Renew(t, l)
				k.change(ref, name, c.field, c.value)
			}
			if isAttached {
				l = k.Attach(ref)
			}
			locktest.Release(t, l)
			if isAttached && c.field != "@" {
				isInvalid(t, name, locktest.ExpectJoinError(t, k, name), ref)
			} else if holders := locktest.ExpectBusy(t, k, name).Holders; len(holders) != 1 || !holders[0].Ended {
				t.Errorf("%s: holders %+v", name, holders)
			}
		}
	}
	r := locktest.NewRequest(t, "late", locktest.Hold(4*time.Minute))
	r.NoWait = true
	admission, err := k.Join(background, r)
	testkit.Must(t, err)
	l, err := admission.Wait(background)
	testkit.Must(t, err)
	locktest.Release(t, l)
	_, _ = open(t, k.url).Join(background, r)
	locktest.ExpectEntries(t, k, "late", locktest.Counts{Holding: 1})
}

// A field that a later version of golock adds to a record stays when the script writes the record again.
func TestFieldOfALaterVersion(t *testing.T) {
	t.Parallel()
	k := openKeeper(t)
	holder, waiter := locktest.AcquireAtOnce(t, k, "n"), locktest.Enqueue(t, k, "n")
	testkit.Eventually(t, "it has asked again, over its subscription", func() bool {
		return string(k.fields(waiter.Ref, "n")["join"]) != "0"
	})
	k.change(waiter.Ref, "n", "later", `"x"`)
	testkit.Must(t, locktest.ReleaseUntilAnswered(holder))
	waiter.ExpectGrant()
	if fields := k.fields(waiter.Ref, "n"); string(fields["later"]) != `"x"` || string(fields["slots"]) != `"0"` {
		t.Errorf("the record of the holder is %s", fields)
	}
}
