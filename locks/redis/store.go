// Package redis keeps locks on a Redis server (6.2 or later, or Valkey), alone,
// behind Sentinel or in a Cluster.
//
// All decisions are one script that runs on the server (lock.lua), atomically
// and on the server's clock. It promises strict order, exclusion among leases
// that are renewed in time, waiting without polling, and that no repeated,
// delayed or lost message makes a second entry or loses one.
//
// It cannot promise what Redis does not: a replica that is promoted may not
// have the latest grants. A server that has come back, whoever it is now, grants
// nothing new for a while (the quarantine), so that holders that it forgot can
// put their leases back. The fence grows over all of that as long as the
// servers' clocks do not go back.
package redis

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"golock/locks"
)

// maxUnits is the largest weight: every unit has a slot number.
const maxUnits = 1 << 16

// defaultTTL is for requests that name none.
const defaultTTL = 30 * time.Second

// Store is a server, or several that act as one. It does nothing until it is
// used.
type Store struct {
	target     *target
	script     script
	clock      locks.Clock
	connection connection
	unsure     atomic.Bool // the server does not tell which one it is
	deaf       atomic.Bool // it does not let us subscribe
}

// Open understands a URL: redis://, rediss://, redis+unix://, redis+sentinel://
// or redis+cluster://. It does no I/O. Errors name the part of the URL that is
// wrong and show no secrets.
func Open(address string) (*Store, error) {
	t, err := parse(address)
	if err != nil {
		return nil, err
	}
	return &Store{target: t, clock: locks.BootTime, connection: connection{target: t}}, nil
}

// URL implements locks.Store.
func (s *Store) URL() string { return s.target.String() }

// Traits implements locks.Store.
func (s *Store) Traits() locks.Traits {
	return locks.Traits{Leased: true, MaxUnits: maxUnits, Queue: true, Hold: true}
}

// Close implements locks.Store. Leases that are held keep the connection open
// until they are released.
func (s *Store) Close() error {
	s.connection.close()
	return nil
}

// Warnings are things that the store found out about the server while it used
// it, and that make its promises weaker. There are none before it was used.
func (s *Store) Warnings() []string {
	var all []string
	if s.target.quarantine > 0 && s.unsure.Load() {
		all = append(all, "the server does not let this user run INFO: after a restart or a failover there is no quarantine, and a forgotten slot may be given away at once")
	}
	if s.deaf.Load() {
		all = append(all, "the server does not let this user subscribe to &"+s.target.prefix+":*: who waits asks once a second instead")
	}
	return all
}

// Join implements locks.Store.
func (s *Store) Join(ctx context.Context, r locks.Request) (locks.Ticket, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%s: not asked yet: %w", s.URL(), err)
	}
	e := s.newEntry(r)
	var a answer
	var asked locks.Instant
	err := s.insist(ctx, func() (err error) {
		a, asked, err = e.ask(ctx, join)
		return err
	})
	if err != nil {
		if !isFinal(err) {
			e.giveUp(ctx, 0) // the store may have been told and its answer lost
			return nil, err
		}
		return nil, fmt.Errorf("%s: %w", s.URL(), err)
	}
	switch a.word {
	case "granted":
		s.note(e)
		return &ticket{entry: e, lease: newLease(e, asked), replaced: e.listed(a)}, nil
	case "waiting":
		s.note(e)
		t := &ticket{entry: e, queued: true, asked: asked, look: a.look, quiet: time.Now().Add(a.quiet), replaced: e.listed(a)}
		t.place.Store(int64(a.place))
		return t, nil
	case "evicted":
		e.leave() // it may have been granted in an answer that was lost
	}
	return nil, e.refused(a)
}

// entry is what this process knows of one of its entries in the store.
type entry struct {
	store  *Store
	ref    locks.Ref
	name   string // "" if only the ref is known
	ttl    time.Duration
	epoch  string
	record record
	raw    string // the record in the store's form; "" if not known
	noWait bool
	most   string // how many may wait already; "": any number
	by     string // who it is, for those that it replaces
	within []locks.Ref
	noted  locks.Instant // when the name was last put into the index
}

func (s *Store) newEntry(r locks.Request) *entry {
	e := &entry{store: s, ref: r.Ref, name: r.Name, ttl: r.TTL, noWait: r.NoWait}
	if e.ttl <= 0 {
		e.ttl = defaultTTL
	}
	for _, w := range r.Within {
		if w.Key == r.Ref.Key {
			e.within = append(e.within, w)
		}
	}
	if r.MaxQueue != nil {
		e.most = strconv.Itoa(*r.MaxQueue)
	}
	if r.Replace != locks.ReplaceNone {
		e.by = locks.ReplacedBy(r)
	}
	claim := r.Claim
	claim.Ticket = 0              // the store gives them
	const tick = time.Millisecond // of the store's clock
	e.record = record{ttl: e.ttl, claim: claim, replace: r.Replace, hold: (r.Hold + tick - 1).Truncate(tick), detail: describe(r)}
	e.raw = e.record.String()
	return e
}

// ask runs the script once for e and keeps what it learns. asked is the moment
// before the question was written.
func (e *entry) ask(ctx context.Context, mode string) (a answer, asked locks.Instant, err error) {
	k := e.store.call(mode, e.ref.Key)
	k.id, k.name, k.epoch, k.record, k.noWait = hex.EncodeToString(e.ref.ID[:]), e.name, e.epoch, e.raw, e.noWait
	k.most, k.by = e.most, e.by
	ids := make([]string, len(e.within))
	for i, w := range e.within {
		ids[i] = hex.EncodeToString(w.ID[:])
	}
	k.within = strings.Join(ids, ",")
	asked = e.store.clock()
	if a, err = e.store.once(ctx, e.ttl, k); err != nil {
		return a, asked, err
	}
	switch a.word {
	case "granted", "waiting", "held":
		e.epoch, e.raw, e.record, e.ttl = a.epoch, a.raw, a.record, a.record.ttl
		if a.name != "" {
			e.name = a.name
		}
		if a.unsure {
			e.store.unsure.Store(true)
		}
	}
	return a, asked, nil
}

// setEars says what the waiter hears of what is published to it.
func (e *entry) setEars(ears hearing) {
	if e.record.ears != ears {
		e.record.ears = ears
		e.raw = e.record.String()
	}
}

// Limits of what looks after an entry that is given up.
const (
	leaveLimit = 2 * time.Second       // until it is left to its TTL
	leaveWait  = 30 * time.Millisecond // of which a caller waits this much
)

// giveUp leaves, and waits that long at most for the store to know; the rest is
// done in the background. A process that is about to stand still (the cause of
// ctx) has no background.
func (e *entry) giveUp(ctx context.Context, wait time.Duration) {
	if errors.Is(context.Cause(ctx), locks.ErrStandsStill) {
		wait = leaveLimit
	}
	gone := *e // its owner may go on with it
	told := make(chan struct{})
	go func() {
		defer close(told)
		gone.leave()
	}()
	patience := time.NewTimer(wait)
	defer patience.Stop()
	select {
	case <-told:
	case <-patience.C:
	}
}

// leave tells the store that the entry is given up.
func (e *entry) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), leaveLimit)
	defer cancel()
	_ = e.store.insist(ctx, func() error {
		_, _, err := e.ask(ctx, quit)
		return err
	})
}

func whyQuiet(left time.Duration) string {
	return fmt.Sprintf("the server has just come back; nothing is granted for another %v, so that those who held a slot can say so", left.Round(100*time.Millisecond))
}

// refused makes an error of an answer that is one.
func (e *entry) refused(a answer) error {
	if a.word == "evicted" {
		return &locks.EvictedError{By: a.by}
	}
	busy := &locks.BusyError{Name: e.name, Waiters: a.waiters, Full: a.full, Holders: e.listed(a)}
	if a.quiet > 0 {
		busy.Reason = whyQuiet(a.quiet)
	}
	switch a.word {
	case "nested":
		nested := &locks.NestedError{Name: e.name, Busy: busy}
		for _, w := range e.within {
			if hex.EncodeToString(w.ID[:]) == a.inside {
				nested.Inside = w
			}
		}
		return nested
	case "gone":
		busy.Reason = "this request was taken out of the queue"
	}
	return busy
}

// listed are the entries of an answer.
func (e *entry) listed(a answer) []locks.Entry {
	var all []locks.Entry
	for _, l := range a.entries {
		all = append(all, l.entry(e.name, e.ref.Key))
	}
	return all
}

// note writes the name into the index that Entries reads. In a cluster the
// script cannot, as the index lives on another node. If it fails, nothing is
// lost but a line of a list without a name.
func (s *Store) note(e *entry) {
	if s.target.kind != cluster {
		return
	}
	client, err := s.connection.use(e.ttl)
	if err != nil {
		return
	}
	e.noted = s.clock()
	name, span := e.name, max(10*e.ttl, indexSpan)+e.record.hold
	go func() {
		defer s.connection.done()
		ctx, cancel := context.WithTimeout(context.Background(), longestAttempt)
		defer cancel()
		until := float64(time.Now().Add(span).UnixMilli())
		_ = client.ZAdd(ctx, s.index(), goredis.Z{Score: until, Member: name}).Err()
		_ = client.Expire(ctx, s.index(), span).Err()
	}()
}

// indexSpan is how long a name stays in the index, at least.
const indexSpan = 24 * time.Hour

// noteAgain keeps the name of a long run in the index.
func (s *Store) noteAgain(e *entry) {
	if s.clock().Sub(e.noted) > indexSpan/2 {
		s.note(e)
	}
}

// detail is what an entry tells about its owner.
type detail struct {
	Host    string   `json:"host"`
	PID     int      `json:"pid"`
	UID     int      `json:"uid"`
	User    string   `json:"user,omitempty"`
	Runs    bool     `json:"runs,omitempty"` // see locks.Request
	Command []string `json:"command,omitempty"`
}

// maxCommand is how many bytes of a command are stored.
const maxCommand = 1024

func describe(r locks.Request) string {
	d := detail{PID: os.Getpid(), UID: os.Geteuid(), Runs: r.Runs}
	d.Host, _ = os.Hostname()
	if u, err := user.LookupId(strconv.Itoa(d.UID)); err == nil {
		d.User = u.Username
	}
	room := maxCommand
	for _, word := range r.Command {
		if len(word) > room {
			d.Command = append(d.Command, word[:room]+"…")
			break
		}
		room -= len(word)
		d.Command = append(d.Command, word)
	}
	text, _ := json.Marshal(d)
	return string(text)
}
