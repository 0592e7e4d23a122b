package locktest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
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

// patience bounds every wait for something that must happen. It is long: it
// ends a broken test, it is no measure of speed.
const patience = testkit.Patience

// order is what a peer is told to do.
type order struct {
	URL     string
	Request locks.Request
}

// report is what a peer says, one line each.
type report struct {
	State string // "queued", "granted", "busy", "nested", "evicted", "error", "released"
	Slots []int
	Fence int64
	Text  string
}

// servePeer joins, reports, and releases when its standard input ends with the
// word release; it just ends when the input does.
func (e Engine) servePeer() {
	say := func(r report) {
		line, _ := json.Marshal(r)
		fmt.Println(string(line))
	}
	var o order
	if err := json.Unmarshal([]byte(os.Getenv(peerVariable)), &o); err != nil {
		say(report{State: "error", Text: err.Error()})
		return
	}
	store, err := e.Open(o.URL)
	if err != nil {
		say(report{State: "error", Text: err.Error()})
		return
	}
	// What runner does on SIGTERM: it stops waiting, or asks its lease.
	ctx, cancel := context.WithCancel(context.Background())
	told, holding := make(chan os.Signal, 1), make(chan locks.Lease, 1)
	signal.Notify(told, syscall.SIGTERM)
	go func() {
		<-told
		cancel()
		if err := (<-holding).Evicted(); err != nil {
			say(report{State: "evicted", Text: err.Error()})
		}
	}()
	ticket, err := store.Join(context.Background(), o.Request)
	if err == nil && ticket.Queued() {
		say(report{State: "queued"})
	}
	var lease locks.Lease
	if err == nil {
		lease, err = ticket.Wait(ctx)
	}
	var busy *locks.BusyError
	var nested *locks.NestedError
	var evicted *locks.EvictedError
	switch {
	case errors.As(err, &evicted):
		say(report{State: "evicted", Text: err.Error()})
		_, _ = io.Copy(io.Discard, os.Stdin) // lives on without the place
		return
	case errors.As(err, &nested):
		say(report{State: "nested", Text: err.Error()})
		return
	case errors.As(err, &busy):
		say(report{State: "busy", Text: err.Error()})
		return
	case err != nil:
		say(report{State: "error", Text: err.Error()})
		return
	}
	g := lease.Grant()
	say(report{State: "granted", Slots: g.Slots, Fence: g.Fence})
	stop := func() {}
	if leased, ok := lease.(locks.RenewableLease); ok {
		stop = keep(leased, func(err error) { say(report{State: "evicted", Text: err.Error()}) })
	}
	holding <- lease
	word, _ := bufio.NewReader(os.Stdin).ReadString('\n')
	if strings.TrimSpace(word) != "release" {
		return
	}
	stop()
	err = lease.Release(context.Background())
	for end := time.Now().Add(patience); errors.As(err, new(*locks.OutageError)) && time.Now().Before(end); {
		err = lease.Release(context.Background()) // a busy machine lets the time of one pass
	}
	if err != nil {
		say(report{State: "error", Text: err.Error()})
		return
	}
	say(report{State: "released"})
	_, _ = io.Copy(io.Discard, os.Stdin) // lives on without the slot
}

// keep renews a lease until it is told to stop, for which it returns the
// function, or until the lease is evicted. A renewal that fails ends nothing
// here: whether the lease is lost shows in what others are granted. None is under
// way when the slot is given back.
func keep(l locks.RenewableLease, evicted func(error)) (stop func()) {
	running, quit := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		beat := time.NewTicker(min(l.Term().TTL/4, 2*time.Second)) // some hear of an eviction by it
		defer beat.Stop()
		for running.Err() == nil {
			ctx, cancel := context.WithTimeout(running, l.Term().TTL/4)
			_, err := l.Renew(ctx)
			cancel()
			var e *locks.EvictedError
			if errors.As(err, &e) {
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
	engine Engine
	url    string
}

func (w *world) open(t *testing.T) locks.Store {
	t.Helper()
	s, err := w.engine.Open(w.url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// peer is another process.
type peer struct {
	t       *testing.T
	ref     locks.Ref
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	reports chan report
	holds   bool // for the test that uses it
}

// mortal is the lease of who is killed.
func (w *world) mortal(r *locks.Request) { r.TTL = w.engine.TTL }

// request is for a name with so many slots.
func request(t *testing.T, name string, limit int, changes ...Change) locks.Request {
	t.Helper()
	return NewRequest(t, name, append([]Change{Limit(limit)}, changes...)...)
}

// join starts a peer with a request.
func (w *world) join(t *testing.T, r locks.Request) *peer {
	t.Helper()
	text, err := json.Marshal(order{URL: w.url, Request: r})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestConformance$")
	// One with the race detector would sleep a second at its end.
	cmd.Env = append(os.Environ(), peerVariable+"="+string(text), "GORACE=atexit_sleep_ms=0")
	cmd.Stderr = os.Stderr
	p := &peer{t: t, ref: r.Ref, cmd: cmd, reports: make(chan report, 8)}
	if p.stdin, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		defer close(p.reports)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			var r report
			if json.Unmarshal(lines.Bytes(), &r) == nil {
				p.reports <- r
			}
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-read
		_ = cmd.Wait()
	})
	return p
}

// here makes a request of this process, which is granted or refused at once.
func (w *world) here(t *testing.T, r locks.Request) (word string, slots []int) {
	t.Helper()
	s := w.open(t)
	ticket, err := s.Join(context.Background(), r)
	if errors.As(err, new(*locks.BusyError)) {
		return "busy", nil
	}
	testkit.Must(t, err)
	l, err := ticket.Wait(context.Background())
	testkit.Must(t, err)
	t.Cleanup(func() { _ = l.Release(context.Background()) })
	return "granted", l.Grant().Slots
}

// expect waits for the next report, which must be of that state.
func (p *peer) expect(state string) report {
	p.t.Helper()
	select {
	case r := <-p.reports:
		if r.State != state {
			p.t.Fatalf("peer %d reports %+v, want %s", p.cmd.Process.Pid, r, state)
		}
		return r
	case <-time.After(patience):
		p.stuck("does not report " + state)
	}
	return report{}
}

// granted waits for the grant, whether the peer has to queue for it or not.
func (p *peer) granted() report {
	p.t.Helper()
	for {
		select {
		case r := <-p.reports:
			if r.State == "queued" {
				continue
			}
			if r.State != "granted" {
				p.t.Fatalf("peer %d reports %+v, want granted", p.cmd.Process.Pid, r)
			}
			return r
		case <-time.After(patience):
			p.stuck("is not granted")
		}
	}
}

// stuck fails and has the peer say, on standard error, where it is.
func (p *peer) stuck(what string) {
	p.t.Helper()
	_ = p.cmd.Process.Signal(syscall.SIGQUIT)
	_, _ = p.cmd.Process.Wait()
	p.t.Fatalf("peer %d %s", p.cmd.Process.Pid, what)
}

// silent fails if the peer has reported anything by now.
func (p *peer) silent() {
	p.t.Helper()
	select {
	case r := <-p.reports:
		p.t.Fatalf("peer %d reports %+v although it is not its turn", p.cmd.Process.Pid, r)
	default:
	}
}

func (p *peer) release() {
	p.t.Helper()
	if _, err := io.WriteString(p.stdin, "release\n"); err != nil {
		p.t.Fatal(err)
	}
	p.expect("released")
}

// kill ends the peer as kill -9 does.
func (p *peer) kill() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		p.t.Fatal(err)
	}
}
