package queue_test

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"sync"
	"testing"
	"time"

	"golock/locks"
	"golock/locks/lease"
	"golock/locks/locktest"
	"golock/locks/queue"
	"golock/test/testkit"
)

// The suite's own model of the rule, made apart from this one, judges histories of a
// store that does nothing but ask.
func TestConformance(t *testing.T) {
	testkit.FixRapid()
	var mu sync.Mutex
	all := map[string]*memory{}
	locktest.Run(t, locktest.Engine{
		Fresh: func(*testing.T) string {
			mu.Lock()
			defer mu.Unlock()
			m := &memory{url: fmt.Sprint("memory:", len(all)), lines: map[string]*line{}, known: map[string]*entry{}}
			all[m.url] = m
			return m.url
		},
		Open: func(url string) (locks.Store, error) {
			mu.Lock()
			defer mu.Unlock()
			return all[url], nil
		},
		OneProcess: true,
	})
}

// memory is a LeaseStore without leases that end: nobody dies.
type memory struct {
	locks.LeaseStore // what no test here asks for
	url              string

	mu    sync.Mutex // guards what follows
	lines map[string]*line
	known map[string]*entry
}

func (m *memory) URL() string          { return m.url }
func (m *memory) Close() error         { return nil }
func (m *memory) Traits() locks.Traits { return lease.Traits() }

func (m *memory) Join(ctx context.Context, r locks.Request) (locks.Ticket, error) {
	e := &entry{m: m, r: r, woken: make(chan struct{}, 1)}
	claim := r.Claim
	claim.Ticket = 0
	e.q = queue.Question{
		Entry:  queue.Entry{ID: r.Ref.ID.String(), Claim: claim, Replace: r.Replace, Kept: r.Hold > 0, Reachable: true},
		NoWait: r.NoWait, MaxQueue: r.MaxQueue, By: locks.ReplacedBy(r), Within: lease.Enclosing(r),
	}
	m.mu.Lock()
	m.known[e.q.Entry.ID] = e
	m.mu.Unlock()
	return lease.NewTicket(ctx, m.url, r, e)
}

func (m *memory) Evict(ctx context.Context, ref locks.Ref, by string) error {
	m.mu.Lock()
	e := m.known[ref.ID.String()]
	m.mu.Unlock()
	if e == nil { // its join is under way
		return locks.ErrLost
	}
	return lease.EvictEntry(ctx, m.url, &entry{m: m, r: e.r, q: queue.Question{Entry: queue.Entry{ID: ref.ID.String()}, By: by}})
}

func (m *memory) Entries(ctx context.Context, name string) iter.Seq2[locks.Entry, error] {
	return lease.Entries(ctx, func(context.Context) ([]locks.Entry, error) {
		m.mu.Lock()
		defer m.mu.Unlock()
		all := []locks.Entry{}
		if l := m.lines[name]; l != nil {
			for _, e := range append(l.in("OHE"), l.in("W")...) {
				all = append(all, m.shown(e))
			}
		}
		lease.Arrange(all)
		return all, nil
	})
}

func (m *memory) shown(e queue.Entry) locks.Entry {
	k := m.known[e.ID]
	s := locks.Entry{Name: k.r.Name, Ref: k.r.Ref, State: locks.Holding, Claim: e.Claim, Slots: e.Slots, Fence: e.Fence, Ended: e.State == queue.Ended, Evicted: e.Evicted}
	if e.State == queue.Waiting {
		s.State = locks.Waiting
	} else if e.Kept {
		s.HeldTill = time.Now().Add(k.r.Hold)
	}
	return s
}

// entry implements lease.Entry.
type entry struct {
	m     *memory
	r     locks.Request
	q     queue.Question
	held  bool // its hold has begun
	woken chan struct{}
}

func (e *entry) Ask(ctx context.Context, step lease.Step) (lease.Answer, locks.Instant, error) {
	e.m.mu.Lock()
	defer e.m.mu.Unlock()
	l := e.m.lines[e.r.Name]
	if l == nil {
		l = newLine()
		l.front = len(e.r.Name) % 3
		e.m.lines[e.r.Name] = l
	}
	e.q.Step = step
	d := l.ask(e.q)
	e.m.tell(d)
	a := lease.Answer{
		Verdict: d.Verdict, Grant: locks.Grant{Ref: e.r.Ref, Slots: d.Entry.Slots, Fence: d.Entry.Fence}, TTL: time.Minute, Epoch: "0",
		Place: d.Place, Recheck: time.Minute, Full: d.Full, Waiters: d.Waiters, By: d.By, Existed: d.Existed,
	}
	for _, h := range d.Holders {
		a.Holders = append(a.Holders, e.m.shown(h))
	}
	for _, r := range d.Replaced {
		a.Replaced = append(a.Replaced, e.m.shown(r))
	}
	a.Inside = d.Inside
	if d.Verdict == lease.Granted && e.r.Hold > 0 && !e.held {
		e.held = true
		time.AfterFunc(e.r.Hold, func() { e.m.holdEnds(l, e.q.Entry.ID) })
	}
	return a, 0, nil
}

func (m *memory) holdEnds(l *line, id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e, ok := l.entries[id]; ok && strings.ContainsRune("HE", rune(e.State)) {
		if e.Kept = false; e.State == queue.Ended {
			e = queue.Entry{ID: id, State: queue.Gone}
		}
		l.entries[id] = e
		m.tell(l.ask(queue.Question{Step: queue.Look}))
	}
}

func (m *memory) tell(d queue.Decision) {
	for _, id := range d.Told {
		select {
		case m.known[id].woken <- struct{}{}:
		default:
		}
	}
}

func (e *entry) Sleep(ctx context.Context, d time.Duration, _ func()) (lease.Answer, locks.Instant, error) {
	select {
	case <-e.woken:
	case <-ctx.Done():
	case <-time.After(d):
	}
	return lease.Answer{}, 0, nil
}

func (e *entry) Events() <-chan locks.Event { return nil }
func (e *entry) Close()                     {}
