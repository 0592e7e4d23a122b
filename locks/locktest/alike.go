package locktest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golock/locks"
)

// Alike performs one random sequence of requests, the seed's, on a store, one
// after the other, and writes down all that can be seen of it from outside: what
// each was told, who was granted which slots in which order, who holds and who
// waits after it. Two stores with the same traits write the same.
func Alike(t *testing.T, e Engine, seed uint64) []string {
	t.Helper()
	beTold()

	w := &world{engine: e, url: e.Fresh(t)}
	s := &sequence{t: t, w: w, watch: w.open(t), rng: rand.New(rand.NewPCG(seed, 1))}
	s.can = s.watch.Traits()
	defer s.end()
	for range 10 + s.rng.IntN(20) {
		switch n := s.rng.IntN(8); {
		case n < 4:
			s.join()
		case n < 6:
			s.release()
		case n < 7:
			s.leave()
		default:
			s.evict()
		}
		s.settle()
	}
	return s.lines
}

// sequence is one performance.
type sequence struct {
	t     *testing.T
	w     *world
	can   locks.Traits
	watch locks.Store
	rng   *rand.Rand
	all   []*player
	fence int64
	lines []string
}

// player is one entry.
type player struct {
	ref    locks.Ref
	store  locks.Store
	cancel context.CancelFunc
	leaves bool

	mu    sync.Mutex // guards what follows
	lease locks.Lease
	err   error
	told  bool // what became of it is written down
	gone  bool // it has been given back, or was never there
	stays bool
}

func (p *player) result() (locks.Lease, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lease, p.err
}

func (s *sequence) write(format string, args ...any) {
	s.lines = append(s.lines, fmt.Sprintf(format, args...))
}

// number is how an entry is called.
func (s *sequence) number(ref locks.Ref) int {
	return slices.IndexFunc(s.all, func(p *player) bool { return p.ref == ref })
}

func (s *sequence) numbers(entries []locks.Entry) []int {
	ns := []int{}
	for _, e := range entries {
		ns = append(ns, s.number(e.Ref))
	}
	slices.Sort(ns)
	return ns
}

// those are the entries for which that is so.
func (s *sequence) those(is func(*player) bool) []int {
	var ns []int
	for i, p := range s.all {
		p.mu.Lock()
		if is(p) {
			ns = append(ns, i)
		}
		p.mu.Unlock()
	}
	return ns
}

func (s *sequence) join() {
	r := request(s.t, "n", s.rng.IntN(5))
	r.Claim.Weight = 1 + s.rng.IntN(max(r.Claim.Max, 1))
	r.Claim.Priority = s.rng.IntN(3) - 1
	r.NoWait = s.rng.IntN(5) == 0
	if s.rng.IntN(4) == 0 {
		most := s.rng.IntN(3)
		r.MaxQueue = &most
	}
	r.Replace = []locks.Replacement{"", "", "", locks.ReplaceWaiting, locks.ReplaceRunning}[s.rng.IntN(5)]
	if s.rng.IntN(5) == 0 {
		r.Hold = time.Hour
	}
	if held := s.those(func(p *player) bool { return p.lease != nil && !p.gone }); s.rng.IntN(6) == 0 && len(held) > 0 {
		r.Within = []locks.Ref{s.all[held[s.rng.IntN(len(held))]].ref}
	}
	p := &player{ref: r.Ref}
	var err error
	if p.store, err = s.w.engine.Open(s.w.url); err != nil {
		s.t.Fatal(err)
	}
	s.all = append(s.all, p)
	var ctx context.Context
	ctx, p.cancel = context.WithCancel(context.Background())
	said := fmt.Sprintf("%d joins: max %d weight %d priority %d", len(s.all)-1, r.Claim.Max, r.Claim.Weight, r.Claim.Priority)
	ticket, err := p.store.Join(ctx, r)
	var busy *locks.BusyError
	var nested *locks.NestedError
	switch {
	case errors.As(err, &nested):
		p.gone = true
		s.write("%s: inside %d", said, s.number(nested.Inside))
		return
	case errors.As(err, &busy):
		p.gone = true
		s.write("%s: busy, held by %v, %d wait, full %v", said, s.numbers(busy.Holders), busy.Waiters, busy.Full)
		return
	case err != nil:
		s.t.Fatal(err)
	}
	// Whether it had to queue for a moment is not asked here.
	s.write("%s: in line", said)
	if r, ok := ticket.(locks.Replacer); ok {
		for _, e := range r.Replaced() { // where that takes several steps it is told before it is done
			s.all[s.number(e.Ref)].leaves = e.State == locks.Waiting
		}
		for _, n := range s.numbers(r.Replaced()) {
			s.write("    in the place of %d", n)
			s.signal(s.all[n])
		}
	}
	go func() {
		l, err := ticket.Wait(ctx)
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.lease, p.err = l, err; err == nil {
			p.stays = r.Hold > 0
		}
	}()
}

// signal is what a store that tells owners by a signal tells them.
func (s *sequence) signal(p *player) {
	if l, _ := p.result(); !s.can.Leased && l == nil {
		p.cancel()
	}
}

func (s *sequence) pick(ns []int) int { return ns[s.rng.IntN(len(ns))] }

func (s *sequence) release() {
	held := s.those(func(p *player) bool { return p.lease != nil && !p.gone })
	if len(held) == 0 {
		return
	}
	n := s.pick(held)
	p := s.all[n]
	p.gone = true
	s.write("%d releases: %v", n, p.lease.Release(context.Background()))
}

func (s *sequence) leave() {
	waiting := s.those(func(p *player) bool { return p.lease == nil && p.err == nil && !p.gone })
	if len(waiting) == 0 {
		return
	}
	n := s.pick(waiting)
	s.write("%d leaves", n)
	s.all[n].leaves = true
	s.all[n].cancel()
}

func (s *sequence) evict() {
	if len(s.all) == 0 {
		return
	}
	n := s.rng.IntN(len(s.all))
	err := s.watch.(locks.Evicter).Evict(context.Background(), s.all[n].ref, "the seed")
	s.write("%d is evicted: %v", n, err)
	if err == nil {
		s.signal(s.all[n])
	}
	if lease, _ := s.all[n].result(); lease != nil && !s.all[n].gone {
		var told error
		switch l := lease.(type) {
		case locks.Marked:
			told = l.Evicted()
		case locks.Leased:
			_, told = l.Renew(context.Background())
		}
		s.write("    and learns of it: %v", told)
	}
}

// settle waits until nothing more happens by itself: the first in the queue
// does not fit, who holds knows of it, who has gone is gone. Then it writes down
// what has happened.
func (s *sequence) settle() {
	var entries []locks.Entry
	eventually(s.t, "nothing more happens", func() bool {
		entries = list(s.t, s.watch, "n")
		var holders []locks.Claim
		first := true
		for _, e := range entries {
			p := s.all[s.number(e.Ref)]
			l, err := p.result()
			switch {
			case e.State == locks.Holding && (l == nil || (p.gone && !e.Ended)):
				return false
			case e.State == locks.Holding:
				holders = append(holders, e.Claim)
			case err != nil || e.Evicted != "" || p.leaves:
				return false
			case first && locks.Admits(holders, e.Claim):
				return false
			default:
				first = false
			}
		}
		// Whoever waits, or holds, is listed.
		return len(s.those(func(p *player) bool {
			listed := slices.ContainsFunc(entries, func(e locks.Entry) bool { return e.Ref == p.ref })
			return !p.gone && p.err == nil && (!listed || p.leaves)
		})) == 0
	})
	var fresh []int
	for _, n := range s.those(func(p *player) bool { return !p.told && (p.lease != nil || p.err != nil) }) {
		p := s.all[n]
		p.told = true
		if p.err != nil {
			s.write("    %d has got nothing: %v", n, p.err)
		} else {
			fresh = append(fresh, n)
		}
	}
	fence := func(n int) int64 { return s.all[n].lease.Grant().Fence }
	highest := s.fence // of before: of those that are granted at the same time either may have the higher one
	for _, n := range fresh {
		s.write("    %d is granted %v", n, s.all[n].lease.Grant().Slots)
		if fence(n) <= s.fence {
			s.t.Errorf("entry %d has fence %d after %d", n, fence(n), s.fence)
		}
		highest = max(highest, fence(n))
	}
	s.fence = highest
	var b strings.Builder
	for _, e := range entries {
		fmt.Fprintf(&b, " %d:%s", s.number(e.Ref), e.State)
		if e.State == locks.Holding {
			fmt.Fprint(&b, e.Slots)
		} else {
			fmt.Fprintf(&b, "@%d", e.Position)
		}
		fmt.Fprintf(&b, "(%d of %d, priority %d", e.Claim.Weight, e.Claim.Max, e.Claim.Priority)
		if e.Ended {
			b.WriteString(", ended")
		}
		if e.Evicted != "" {
			b.WriteString(", evicted by " + e.Evicted)
		}
		if !e.HeldTill.IsZero() {
			b.WriteString(", held")
		}
		b.WriteByte(')')
	}
	s.write("   %s", b.String())
}

// end leaves nothing behind.
func (s *sequence) end() {
	for _, p := range s.all {
		p.cancel()
	}
	for _, p := range s.all {
		eventually(s.t, "a waiting ends", func() bool {
			l, err := p.result()
			return p.gone || l != nil || err != nil
		})
		if l, _ := p.result(); l != nil && !p.gone {
			_ = l.Release(context.Background())
		}
		if p.stays {
			_ = s.watch.(locks.Evicter).Evict(context.Background(), p.ref, "the end")
		}
		p.store.Close()
	}
}
