//go:build world

package world_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// protocols has the schemes of lease files that docs/stores.md names for each kind of share.
var protocols = []struct{ name, schemes string }{
	{"nfs4", "mkdir symlink excl"},
	{"nfs3", "mkdir symlink excl"},
	{"smb", "mkdir excl"},
}

// shareLease is the TTL of the runs on a share.
const shareLease = "10s"

// share is a server and two guests that share one of its directories.
type share struct {
	server  *guest
	clients []*guest
	kind    string
	scheme  string
	loads   []<-chan result
}

// TestShare lets two guests take turns on a lock in a directory of a third one, by NFS and SMB, while golock is
// killed, the server is stopped, the network cut, a guest stands still or loses its power.
func TestShare(t *testing.T) {
	s := &share{server: boot(t, "server", 3)}
	s.clients = []*guest{boot(t, "one", 1), boot(t, "two", 2)}
	for _, g := range append(s.clients, s.server) {
		g.run(t, "network")
	}
	table := []string{
		"| share | scheme | fault | commands | overlaps | longest | lost runs | longest pause |",
		"|---|---|---|---:|---:|---:|---:|---:|",
	}
	for _, p := range protocols {
		s.kind = p.name
		s.server.run(t, "share-server", p.name)
		for _, g := range s.clients {
			t.Log(g.run(t, "share-client", p.name))
		}
		for i, scheme := range strings.Fields(p.schemes) {
			s.scheme = scheme
			for _, f := range s.faults() {
				if i > 0 && f.name != "golock killed" {
					continue // the schemes differ in one system call only
				}
				t.Run(p.name+" "+scheme+" "+f.name, func(t *testing.T) { table = append(table, s.through(t, f)) })
			}
		}
		for _, g := range s.clients {
			g.run(t, "share-leave")
		}
	}
	t.Log("\n" + strings.Join(table, "\n"))
}

// shareFault is something that happens to a share and the guests that use it.
type shareFault struct {
	name       string
	begin, end func(t *testing.T)
	lasts      time.Duration

	// overlaps says that docs/stores.md does not promise that commands exclude each other in this fault.
	overlaps bool
}

func (s *share) faults() []shareFault {
	first := s.clients[0]
	nothing := func(*testing.T) {}
	return []shareFault{
		{"golock killed", func(t *testing.T) { first.run(t, "share-kill") }, nothing, 5 * time.Second, false},
		{"server stopped", func(t *testing.T) { s.server.run(t, "share-server", "stop") },
			func(t *testing.T) { s.server.run(t, "share-server", s.kind) }, 20 * time.Second, false},
		{"server rebooted", func(*testing.T) { s.server.tell("system_reset") }, func(t *testing.T) {
			s.server.await()
			s.server.run(t, "network")
			s.server.run(t, "share-server", s.kind)
		}, 0, false},
		{"network of one guest cut", func(*testing.T) { first.tell("set_link card off") },
			func(*testing.T) { first.tell("set_link card on") }, 30 * time.Second, false},
		{"one guest stands still", func(*testing.T) { first.tell("stop") },
			func(*testing.T) { first.tell("cont") }, 30 * time.Second, true},
		{"one guest loses its power", func(*testing.T) { first.tell("system_reset") }, func(t *testing.T) {
			first.await()
			first.dead()
			first.run(t, "network")
			first.run(t, "share-client", s.kind)
			s.loads[0] = first.begin(timeOfScript, "share-load", s.scheme, shareLease)
		}, 0, false},
	}
}

// through runs the load before, during and after a fault, and returns the row of the table.
func (s *share) through(t *testing.T, f shareFault) string {
	for _, g := range s.clients {
		g.forget()
	}
	s.loads = nil
	for _, g := range s.clients {
		s.loads = append(s.loads, g.begin(timeOfScript, "share-load", s.scheme, shareLease))
	}
	overlaps := make(chan map[pair]bool)
	ends := make(chan bool)
	go func() { overlaps <- s.observe(ends) }()
	s.awaitCommands(t, 6)
	f.begin(t)
	time.Sleep(f.lasts) // the fault
	f.end(t)
	s.awaitCommands(t, 6)
	for _, g := range s.clients {
		g.run(t, "share-stop")
	}
	lost := 0
	for i, load := range s.loads {
		r := <-load
		lost += strings.Count(r.text, "ended with 79")
		if r.code != 0 {
			t.Errorf("the load of %s: %+v", s.clients[i].name, r)
		}
		if text := strings.TrimSpace(r.text); text != "" {
			t.Logf("%s:\n%s", s.clients[i].name, text)
		}
	}
	close(ends)
	beside, longest := <-overlaps, time.Duration(0)
	for p := range beside {
		longest = max(longest, min(p.older.to.Sub(p.newer.from), p.newer.to.Sub(p.newer.from)))
	}
	if len(beside) > 0 && !f.overlaps {
		t.Errorf("%d commands ran beside another one, for %v at most", len(beside), longest)
	}
	all := s.lives()
	return fmt.Sprintf("| %s | %s | %s | %d | %d | %.1f s | %d | %.1f s |", s.kind, s.scheme, f.name, len(all),
		len(beside), longest.Seconds(), lost, pause(all).Seconds())
}

// pair is two commands of different guests, the older one first.
type pair struct{ older, newer *life }

// observe counts the commands that lived beside another one, until ends is closed. What the guests tell may arrive
// in another order than it happened, so they are asked: the newer command has begun before the older one's guest is
// asked, and lives after that guest has answered. An overlap that is shorter than these questions is not seen.
func (s *share) observe(ends <-chan bool) (overlaps map[pair]bool) {
	overlaps = map[pair]bool{}
	for {
		select {
		case <-ends:
			return overlaps
		case <-time.After(20 * time.Millisecond): // between two looks
		}
		open := slices.DeleteFunc(s.lives(), (*life).isOver)
		for i, newer := range open {
			for _, older := range open[:i] {
				p := pair{older, newer}
				if older.guest != newer.guest && !overlaps[p] && older.confirmed(ends) && newer.confirmed(ends) {
					overlaps[p] = true
				}
			}
		}
	}
}

// isOver reports whether the agent has told that the command has ended.
func (l *life) isOver() bool {
	l.guest.mu.Lock()
	defer l.guest.mu.Unlock()
	return !l.to.IsZero()
}

// confirmed asks the agent whether the command lives. A guest that stands still answers when it goes on.
func (l *life) confirmed(ends <-chan bool) bool {
	answer := l.guest.call("lives")
	for {
		select {
		case line := <-answer:
			return slices.Contains(strings.Fields(line)[1:], l.token)
		case <-ends:
			return false
		case <-time.After(time.Second):
			if l.isOver() { // the guest was reset, so the question is lost
				return false
			}
		}
	}
}

// lives returns the lives of all commands in the order in which they began.
func (s *share) lives() (all []*life) {
	for _, g := range s.clients {
		g.mu.Lock()
		all = append(all, g.lives...)
		g.mu.Unlock()
	}
	slices.SortFunc(all, func(a, b *life) int { return a.from.Compare(b.from) })
	return all
}

// awaitCommands waits until n more commands have begun.
func (s *share) awaitCommands(t *testing.T, n int) {
	t.Helper()
	want, limit := len(s.lives())+n, time.Now().Add(timeOfScript)
	for len(s.lives()) < want {
		if time.Now().After(limit) {
			t.Fatalf("%d commands of %d have begun", len(s.lives()), want)
		}
		time.Sleep(100 * time.Millisecond) // between two looks
	}
}

// pause returns the longest time between two starts of commands.
func pause(all []*life) (longest time.Duration) {
	for i := 1; i < len(all); i++ {
		longest = max(longest, all[i].from.Sub(all[i-1].from))
	}
	return longest
}

// forget drops the lives of a guest.
func (g *guest) forget() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lives = nil
}

// dead notes that no command of before a reset lives.
func (g *guest) dead() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, one := range g.lives {
		if one.to.IsZero() {
			one.to = time.Now()
		}
	}
}
