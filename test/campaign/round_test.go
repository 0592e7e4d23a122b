//go:build integration

package campaign_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golock/test/testkit"
)

// A round carries out a plan: golocks of several hosts use several names of one store, faults happen,
// all runs end, and at last the locks must be free.

type round struct {
	*plan
	*engine
	site  site
	dir   string // of the recorder
	rec   *recorder
	begun moment

	golocks sync.WaitGroup
	mu      sync.Mutex
	runs    []*run // by token
	faults  []fault
}

// patience is how long after the last fault, request or end of a golock the next one must
// have had its turn and ended, on a busy machine. It is much more than that takes.
const patience = 90 * time.Second

// play carries out a plan and gives a history for each name.
func (e *engine) play(t *testing.T, s site, p *plan) (list []*history) {
	dir, err := os.MkdirTemp("", "golock-campaign-") // a socket's path must be short
	testkit.Must(t, err)
	defer os.RemoveAll(dir)
	r := &round{plan: p, engine: e, site: s, dir: dir, rec: newRecorder(t, filepath.Join(dir, "recorder"))}
	defer r.rec.close()
	testkit.Must(t, s.begin(p))
	for i := range p.Requests {
		q := &p.Requests[i]
		r.runs = append(r.runs, &run{request: *q, flags: r.flags(q)})
	}
	r.run()
	free := make([]string, e.names)
	var all sync.WaitGroup
	for i := range free {
		all.Go(func() { free[i] = r.free(i) })
	}
	all.Wait()
	r.golocks.Wait()
	for i := range free {
		h := r.history(i)
		h.free = free[i]
		list = append(list, h)
	}
	return list
}

func (r *round) history(name int) *history {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rec.mu.Lock()
	defer r.rec.mu.Unlock()
	h := &history{engine: r.engine, TTL: r.TTL, skewed: r.site.skewed(), begun: r.begun}
	h.heirs = r.engine.name == "bind" && !r.socketFile()
	for _, u := range r.runs {
		if u.Name != name || u.started == 0 {
			continue
		}
		c := *u
		for _, l := range r.rec.lives {
			if l.token == u.Token {
				one := *l
				c.lives = append(c.lives, &one)
			}
		}
		slices.SortStableFunc(c.lives, func(a, b *life) int { return a.part - b.part })
		h.runs = append(h.runs, &c)
	}
	for _, f := range r.faults {
		if f.token < 0 || r.runs[f.token].Name == name {
			h.faults = append(h.faults, f)
		}
	}
	h.faults = append(h.faults, stallsSince(r.begun)...)
	return h
}

// run makes what is planned, and waits for the end of all that lives.
func (r *round) run() {
	r.begun = monotonic()
	var all sync.WaitGroup
	all.Go(func() {
		for _, u := range r.runs {
			r.until(u.At)
			r.start(u)
		}
	})
	for _, f := range r.Faults {
		all.Go(func() {
			r.until(f.At)
			r.make(f)
		})
	}
	made := make(chan bool)
	go func() {
		all.Wait()
		close(made)
	}()
	for over := false; !over; r.letGo(false) {
		select {
		case <-made:
			over = true
		case <-time.After(100 * time.Millisecond):
		}
	}
	end := time.Now().Add(patience)
	for left := r.going(); len(left) > 0; time.Sleep(20 * time.Millisecond) {
		before := len(left)
		if left = r.going(); len(left) < before {
			end = time.Now().Add(patience)
		}
		for _, u := range left {
			if time.Now().After(end) {
				u.stuck = true
				_ = u.process.Kill()
			}
			// A golock that was told to go on while it was about to stop is one that
			// has stopped (signals.Relay.Suspend): told again, it goes on.
			if r.suspended(u) {
				_ = u.process.Signal(syscall.SIGCONT)
			}
		}
		r.letGo(false)
	}
	for end := time.Now().Add(2 * soon); r.letGo(true) && time.Now().Before(end); {
		time.Sleep(20 * time.Millisecond)
	}
}

func (r *round) suspended(u *run) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.faults, func(f fault) bool { return f.kind == suspend && f.token == u.Token })
}

// letGo ends processes that may outlive their golock, all of them or those that keep a
// slot because it was killed, and reports whether any are left.
func (r *round) letGo(all bool) (left bool) {
	list := make([]*history, r.names)
	for i := range list {
		list[i] = r.history(i)
	}
	for _, l := range r.rec.running() {
		h := list[r.runs[l.token].Name]
		u := h.run(l.token)
		if u != nil && (all && !h.mustEnd(u, l) || !h.leased && u.killed && l.part > 0) { // else it is not heard of yet
			_ = l.conn.CloseWrite()
		}
		left = true
	}
	return left
}

func (r *round) until(at time.Duration) {
	time.Sleep(at - time.Duration(monotonic()-r.begun)) // the plan says when
}

// going are the golocks that have not ended.
func (r *round) going() (list []*run) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, u := range r.runs {
		if u.ended == 0 {
			list = append(list, u)
		}
	}
	return list
}

// lives is where the commands of a name lock their bytes.
func (r *round) lives(name int) string { return filepath.Join(r.dir, fmt.Sprintf("lives-%d", name)) }

// free says why a lock is not free at last; "": it is. Leases and holds may have
// to end first, and a server that has just come back has its quarantine.
func (r *round) free(name int) string {
	limit := 15 * time.Second
	if r.leased {
		limit += r.lookTTL() + quarantine
	}
	for end := time.Now().Add(limit); ; time.Sleep(50 * time.Millisecond) {
		if said := r.look(name); said == "" || time.Now().After(end) {
			return said
		}
	}
}

// lookTTL is the lease of a look whether a lock is free: one that a server on a busy machine can renew.
func (r *round) lookTTL() time.Duration { return max(r.TTL, 10*time.Second) }

func (r *round) look(name int) string {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	url, label := r.site.url(name, -1), r.site.name(name)
	// First one that takes the slot: a lease file whose golock is dead is known
	// as such by who has looked for a whole TTL, and a list looks but once.
	take := []string{"run", "-n", "--store", url, "--name", label}
	if r.leased { // what a slow machine could not give back is free by r.free's limit
		take = append(take, "--ttl", r.lookTTL().String())
	}
	for _, argv := range [][]string{
		append(take, "--", "echo", "[]"),
		{"ls", "--json", "--store", url, label},
	} {
		c := exec.CommandContext(ctx, testkit.Golock, argv...)
		c.Env = environment
		if out, err := c.CombinedOutput(); err != nil || strings.TrimSpace(string(out)) != "[]" {
			return fmt.Sprintf("%s: %v: %s", argv[0], err, out)
		}
	}
	return ""
}
