package sql

import (
	"context"
	"iter"
	"time"

	"golock/locks"
	"golock/locks/lease"
	"golock/locks/queue"
)

// Entries implements locks.Store.
func (s *Store) Entries(ctx context.Context, name string) iter.Seq2[locks.Entry, error] {
	key := ""
	if name != "" {
		key = locks.KeyOf(name).String()
	}
	return lease.Entries(ctx, func(ctx context.Context) ([]locks.Entry, error) { return s.list(ctx, key) })
}

// Find implements locks.QueueStore.
func (s *Store) Find(ctx context.Context, ref locks.Ref) (locks.Entry, error) {
	ctx, cancel := context.WithTimeout(ctx, lease.ListLimit)
	defer cancel()
	entries, err := s.list(ctx, ref.Key.String())
	if err != nil {
		return locks.Entry{}, err
	}
	return locks.FindEntry(entries, ref)
}

// list gives the live entries of a key, or of all ("").
func (s *Store) list(ctx context.Context, key string) (entries []locks.Entry, err error) {
	err = lease.Retry(ctx, s.URL(), func() error {
		entries, err = s.listOnce(ctx, key)
		return s.judge(err)
	})
	lease.Arrange(entries)
	return entries, lease.Located(s.URL(), err)
}

// listOnce is one attempt. It locks and changes nothing.
func (s *Store) listOnce(ctx context.Context, key string) ([]locks.Entry, error) {
	ctx, cancel := context.WithTimeout(ctx, lease.LongestAttempt)
	defer cancel()
	c := &session{store: s}
	defer c.idle()
	where := "entry_id<>''"
	names := "SELECT lock_key,info FROM " + s.table + " WHERE entry_id='' AND lock_key<>''"
	if key != "" {
		where += " AND lock_key='" + key + "'"
		names += " AND lock_key='" + key + "'"
	}
	answers, err := c.ask(ctx, "SELECT "+s.dialect.Facts()+";"+names+";SELECT lock_key,"+columns+" FROM "+s.table+" WHERE "+where+
		" AND state IN ('H','O','E','W') ORDER BY lock_key,state,ord,entry_id")
	switch {
	case s.verdict(err) == NoTable:
		return nil, nil
	case err != nil:
		return nil, err
	case len(answers) != 3:
		return nil, refusal("%d answers to 3 questions", len(answers))
	}
	f, err := readFacts(answers[0])
	if err != nil {
		return nil, &lease.Refusal{Err: err}
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
			return nil, &lease.Refusal{Err: errNotOurs}
		}
		r, err := parseRow(fields[1:])
		if err != nil {
			return nil, &lease.Refusal{Err: err}
		}
		if r.until() <= f.now {
			continue
		}
		all = append(all, r.entry(called[fields[0]], fields[0], f.now))
	}
	return all, nil
}

// entry is what the contract shows of a row.
func (r *row) entry(name, key string, now int64) locks.Entry {
	e := locks.Entry{
		Name: name, State: locks.Waiting, Claim: r.Claim,
		Since: time.UnixMicro(r.since), Expires: max(span(r.ends-now), 0), TTL: r.ttl, Evicted: r.Evicted,
	}
	parseOwner(r.info).Describe(&e)
	e.Ref, _ = locks.ParseRef(key + "-" + r.ID)
	if r.State == queue.Waiting {
		return e
	}
	e.State, e.Slots, e.Fence = locks.Holding, r.Slots, r.Fence
	if r.hold > 0 && r.State != queue.Offered {
		e.HeldTill = time.UnixMicro(r.hold)
	}
	e.Ended = r.State == queue.Ended || r.State == queue.Holding && r.ends <= now
	return e
}
