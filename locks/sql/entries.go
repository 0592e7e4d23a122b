package sql

import (
	"context"
	"errors"
	"time"

	"golock/locks"
	"golock/locks/lease"
	"golock/locks/network"
	"golock/locks/queue"
)

// Entries implements locks.Store.
func (s *Store) Entries(ctx context.Context, name string) ([]locks.Entry, error) {
	of := ""
	if name != "" {
		of = " AND lock_key='" + locks.KeyOf(name).String() + "'"
	}
	return s.list(ctx, of)
}

// Find implements locks.Queue.
func (s *Store) Find(ctx context.Context, ref locks.Ref) (locks.Entry, error) {
	return ref.In(s.list(ctx, " AND lock_key='"+ref.Key.String()+"'"))
}

// list returns the live entries that fit a condition: " AND ...", or "" for all. It locks and changes nothing.
func (s *Store) list(ctx context.Context, of string) (entries []locks.Entry, err error) {
	var invalid []locks.InvalidEntry
	c := &session{store: s}
	defer c.disconnect()
	name := "(SELECT LEFT(n.name,766) FROM " + s.table + " n WHERE n.lock_key=e.lock_key AND n.entry_id='')"
	rows := " FROM " + s.table + " e WHERE entry_id<>''" + of + " AND state<>'G'"
	text := func(columns string) string {
		return "SELECT lock_key," + name + "," + s.dialect.Clock + "," + columns + rows +
			" ORDER BY lock_key,state,ord,entry_id"
	}
	err = c.retryCall(ctx, func(ctx context.Context) error {
		entries, invalid = nil, nil
		want := shape{columns: 3 + entryCount}
		answers, err := c.ask(ctx, text(selectedOf(rows)), want)
		if errors.Is(err, network.ErrTooLong) {
			answers, err = c.ask(ctx, text(selectedBrief), want)
		}
		if err != nil {
			return err
		}
		for _, f := range answers[0] {
			var key, name string
			var now int64
			if err := scan(f, &key, &name, &now); err != nil {
				return err
			}
			r := parseRow(f[3:])
			if r.flaw == nil && !isID(key) {
				r.flaw = errors.New("the key of a lock is 32 hexadecimal digits")
			}
			switch {
			case r.until() <= now:
			case r.flaw != nil:
				invalid = append(invalid, r.invalid(unescape(name), key))
			default:
				entries = append(entries, r.entry(unescape(name), key, now))
			}
		}
		return nil
	})
	if err == nil {
		err = lease.Located(s.URL(), lease.Invalid(invalid))
	}
	locks.Arrange(entries)
	return entries, err
}

// entry converts the row of an entry. name and key belong to its lock; now is the server's time.
func (r *row) entry(name, key string, now int64) locks.Entry {
	e := locks.Entry{
		Name: name, State: locks.Waiting, Claim: r.Claim,
		Expires: max(span(r.ends-now), 0), TTL: r.ttl, Evicted: r.Evicted,
	}
	e.SetAge(span(now - r.since))
	parseOwner(r.info).Describe(&e)
	e.Ref, _ = locks.ParseRef(key + "-" + r.ID)
	if r.State == queue.Waiting {
		return e
	}
	e.State, e.Slots, e.Fence = locks.Holding, r.Slots, r.Fence
	if r.hold > 0 && r.State != queue.Offered {
		e.HeldTill = time.Now().Add(span(r.hold - now))
	}
	e.Ended = r.State == queue.Ended || r.State == queue.Holding && r.ends <= now
	return e
}
