package locktest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golock/locks"
	"golock/test/testkit"
)

// peerVariable tells a process of the suite what to ask for.
const peerVariable = "LOCKTEST_PEER"

// order is what a peer is told to do: to join, perhaps to start heirs, and then to release.
type order struct {
	URL     string
	Request locks.Request
	Heir    bool // start a process that inherits the slot
}

// report is what a peer says.
type report struct {
	State string // "queued", "granted", "heir", "released", or the outcome of an error
	Slots []int
	Fence int64
	Heir  int // its process number
	Text  string
}

// outcome returns one word for the error of a store: "" if there is none, "error" for one that no test expects.
func outcome(err error) string {
	var busy *locks.BusyError
	switch {
	case err == nil:
		return ""
	case errors.As(err, new(*locks.EvictedError)): // is an ErrLost too
		return "evicted"
	case errors.As(err, &busy) && busy.Inside != nil:
		return "nested"
	case busy != nil:
		return "busy"
	case errors.Is(err, locks.ErrLost):
		return "lost"
	case errors.Is(err, context.Canceled):
		return "canceled"
	}
	return "error"
}

// servePeer is the main function of a peer that is a process. It ends with its standard input.
func (e Engine) servePeer() {
	// On SIGTERM the peer does what the runner does: it stops waiting, or asks its lease for an eviction.
	ctx, cancel := context.WithCancel(context.Background())
	terminated, holding := make(chan os.Signal, 1), make(chan locks.Lease, 1)
	signal.Notify(terminated, syscall.SIGTERM)
	a := actor{
		open: e.Open, next: json.NewDecoder(os.Stdin).Decode, holding: holding,
		say: func(r report) {
			line, _ := json.Marshal(r)
			fmt.Println(string(line))
		},
	}
	go func() {
		<-terminated
		cancel()
		if err := (<-holding).Evicted(); err != nil {
			a.say(report{State: "evicted", Text: err.Error()})
		}
	}()
	a.act(ctx)
}

// KeepRenewed renews a lease until stop is called, or the lease is evicted. A renewal that
// fails ends nothing: whether the lease is lost shows in what others are granted. When
// stop returns, no renewal is under way.
func KeepRenewed(l locks.Lease, evicted func(error)) (stop func()) {
	running, quit := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		beat := time.NewTicker(min(l.Term().TTL/4, 2*time.Second)) // a renewal may tell of an eviction
		defer beat.Stop()
		for running.Err() == nil {
			ctx, cancel := context.WithTimeout(running, l.Term().TTL/4)
			_, err := l.Renew(ctx)
			cancel()
			if outcome(err) == "evicted" {
				evicted(err)
				return
			}
			select {
			case <-beat.C:
			case <-l.Events():
			case <-running.Done():
			}
		}
	})
	return func() {
		quit()
		done.Wait()
	}
}

// world is one fresh store and the processes that use it.
type world struct {
	t      *testing.T
	engine Engine
	url    string
}

func (w *world) open() locks.Store {
	w.t.Helper()
	s, err := w.engine.Open(w.url)
	testkit.Must(w.t, err)
	w.t.Cleanup(func() { s.Close() })
	return s
}

// peer is a process, or with Engine.Kill a goroutine, that asks for a slot.
type peer struct {
	teller
	PID  int
	t    *testing.T
	ref  locks.Ref
	last report // the last report that was read
}

// shortTTL sets the TTL for a process that will be killed.
func (w *world) shortTTL(r *locks.Request) { r.TTL = w.engine.TTL }

// granted starts a peer that asks for a slot of a name, with limit as its max, and gets one at once.
func (w *world) granted(name string, limit int, changes ...Change) *peer {
	w.t.Helper()
	return w.join(name, limit, changes...).expect("granted")
}

// queued starts a peer that has to wait.
func (w *world) queued(name string, limit int, changes ...Change) *peer {
	w.t.Helper()
	return w.join(name, limit, changes...).expect("queued")
}

func (w *world) join(name string, limit int, changes ...Change) *peer {
	w.t.Helper()
	r := NewRequest(w.t, name, append([]Change{Limit(limit)}, changes...)...)
	if w.engine.Kill != nil {
		g := startGoroutine(w.t, w.engine)
		g.Tell(order{URL: w.url, Request: r})
		return &peer{teller: g, PID: os.Getpid(), t: w.t, ref: r.Ref}
	}
	c := testkit.StartChild[order, report](w.t, peerVariable, func(cmd *exec.Cmd) {
		cmd.Args = append(cmd.Args, "-test.run=^TestConformance$")
		// A process with the race detector would sleep for a second before it ends.
		cmd.Env = append(cmd.Env, "GORACE=atexit_sleep_ms=0")
	})
	c.Tell(order{URL: w.url, Request: r})
	return &peer{teller: c, PID: c.PID, t: w.t, ref: r.Ref}
}

func (p *peer) next() report {
	p.t.Helper()
	p.last = p.Hear()
	return p.last
}

// expect waits for the next report, which must be of that state and say these words.
func (p *peer) expect(state string, words ...string) *peer {
	p.t.Helper()
	r := p.next()
	missing := func(word string) bool { return !strings.Contains(r.Text, word) }
	if r.State != state || slices.ContainsFunc(words, missing) {
		p.t.Fatalf("peer %d reports %+v, want %s %q", p.PID, r, state, words)
	}
	return p
}

// admitted waits for the grant, whether the peer has to queue for it or not.
func (p *peer) admitted() *peer {
	p.t.Helper()
	if p.next().State == "queued" {
		p.next()
	}
	if p.last.State != "granted" {
		p.t.Fatalf("peer %d reports %+v, want granted", p.PID, p.last)
	}
	return p
}

func (p *peer) pid() string { return fmt.Sprintf("pid %d", p.PID) }

// silent fails if the peer has reported anything by now.
func (p *peer) silent() {
	p.t.Helper()
	p.Silent(time.Millisecond)
}

// heir has the peer start a process that inherits the slot.
func (p *peer) heir() (pid int) {
	p.t.Helper()
	p.Tell(order{Heir: true})
	return p.expect("heir").last.Heir
}

func (p *peer) release() {
	p.t.Helper()
	p.Tell(order{})
	p.expect("released")
}
