package sql

import (
	"context"
	"encoding/hex"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"golock/locks"
)

// listLimit bounds a list whose caller sets no bound.
const listLimit = 10 * time.Second

// Entries implements locks.Store.
func (s *Store) Entries(ctx context.Context, name string) iter.Seq2[locks.Entry, error] {
	return func(yield func(locks.Entry, error) bool) {
		ctx, cancel := context.WithTimeout(ctx, listLimit)
		defer cancel()
		var entries []locks.Entry
		err := s.insist(ctx, func() (err error) {
			key := ""
			if name != "" {
				key = locks.KeyOf(name).String()
			}
			entries, err = s.list(ctx, key)
			return s.judge(err)
		})
		if err != nil {
			yield(locks.Entry{}, s.located(err))
			return
		}
		for _, e := range entries {
			if !yield(e, nil) {
				return
			}
		}
	}
}

// Find implements locks.Attacher.
func (s *Store) Find(ctx context.Context, ref locks.Ref) (locks.Entry, error) {
	ctx, cancel := context.WithTimeout(ctx, listLimit)
	defer cancel()
	var entries []locks.Entry
	err := s.insist(ctx, func() (err error) {
		entries, err = s.list(ctx, ref.Key.String())
		return s.judge(err)
	})
	if err != nil {
		return locks.Entry{}, s.located(err)
	}
	return locks.Pick(entries, ref)
}

// list gives the live entries of a key, or of all (""): name by name, holders by
// slot, then waiters in their order. It locks and changes nothing.
func (s *Store) list(ctx context.Context, key string) ([]locks.Entry, error) {
	ctx, cancel := context.WithTimeout(ctx, longestAttempt)
	defer cancel()
	l := &line{store: s}
	defer l.close()
	if err := l.open(ctx); err != nil {
		return nil, err
	}
	where := "entry_id<>''"
	names := "SELECT lock_key,info FROM " + s.table + " WHERE entry_id='' AND lock_key<>''"
	if key != "" {
		where += " AND lock_key='" + key + "'"
		names += " AND lock_key='" + key + "'"
	}
	answers, err := l.conn.Run(ctx, "SELECT "+s.dialect.Facts()+";"+names+";SELECT lock_key,"+columns+" FROM "+s.table+" WHERE "+where+
		" AND state IN ('H','W') ORDER BY lock_key,state,place,ticket,entry_id")
	switch {
	case s.verdict(err) == NoTable:
		return nil, nil
	case err != nil:
		return nil, err
	case len(answers) != 3:
		return nil, &refusal{err: fmt.Errorf("%d answers to 3 questions", len(answers))}
	}
	f, err := readFacts(answers[0])
	if err != nil {
		return nil, &refusal{err: err}
	}
	called := make(map[string]string)
	for _, r := range answers[1] {
		if len(r) == 2 {
			called[r[0]] = unescape(r[1])
		}
	}
	var all []locks.Entry
	for _, fields := range answers[2] {
		if len(fields) == 0 {
			return nil, &refusal{err: errNotOurs}
		}
		r, err := parseRow(fields[1:])
		if err != nil {
			return nil, &refusal{err: err}
		}
		if r.until() <= f.now {
			continue
		}
		var key locks.Key
		_, _ = hex.Decode(key[:], []byte(fields[0]))
		all = append(all, r.entry(called[fields[0]], key, f.now))
	}
	slices.SortStableFunc(all, func(a, b locks.Entry) int {
		switch {
		case a.Name != b.Name:
			return strings.Compare(a.Name, b.Name)
		case len(a.Slots) == 0 || len(b.Slots) == 0:
			return len(b.Slots) - len(a.Slots)
		}
		return a.Slots[0] - b.Slots[0]
	})
	for i := range all {
		if all[i].State == locks.Waiting {
			all[i].Position = 1
			if i > 0 && all[i-1].Name == all[i].Name {
				all[i].Position += all[i-1].Position
			}
		}
	}
	return all, nil
}

// entry is what the contract shows of a row.
func (r *row) entry(name string, key locks.Key, now int64) locks.Entry {
	d := parseDetail(r.info)
	e := locks.Entry{
		Name: name, Ref: locks.Ref{Key: key}, State: locks.Waiting, Claim: r.claim, Host: d.host, PID: d.pid, UID: d.uid, User: d.user, Command: d.command,
		Since: time.UnixMicro(r.since), Expires: max(span(r.ends-now), 0), TTL: r.ttl, Evicted: r.evicted, Runs: d.runs,
	}
	if id, err := hex.DecodeString(r.id); err == nil {
		copy(e.Ref.ID[:], id)
	}
	if r.state == holding {
		e.State, e.Slots, e.Fence = locks.Holding, r.slots, r.fence
		if r.hold > 0 {
			e.HeldTill = time.UnixMicro(r.hold)
		}
		e.Ended = r.left(now)
	}
	return e
}
