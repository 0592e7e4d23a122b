package crash_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks/redis/redistest"
)

// This file pins what a store across machines adds: a lease runs out, a server
// is stopped, killed, emptied or cut off, golock itself is killed or stopped.
// Never do two commands run at once, no job ends without need, and none waits
// for ever. The judges share no clock and no file with server or golock.

// shortTTL is that of most golocks here.
const shortTTL = 2 * time.Second

// worlds gives n worlds of their own on one server: the same fault hits all.
func worlds(t *testing.T, s *redistest.Server, n int, ttl time.Duration) []*world {
	t.Helper()
	var all []*world
	for i := range n {
		w := newWorld(t)
		w.store, w.leased = s.URL("prefix=w"+strconv.Itoa(i)), true
		w.always = []string{"--ttl", strconv.FormatFloat(ttl.Seconds(), 'f', -1, 64)}
		w.wanted = []string{""}
		all = append(all, w)
	}
	return all
}

// pair is a holder that is told when to end, and one who waits.
type pair struct {
	*world
	holder, waiter *proc
	release        func()
}

func pairs(t *testing.T, all []*world) []pair {
	t.Helper()
	var ps []pair
	for _, w := range all {
		s, release := w.lasting(spec{max: 1})
		ps = append(ps, pair{world: w, holder: w.start(s), release: release})
	}
	for i := range ps {
		ps[i].awaitBegin(ps[i].holder)
		ps[i].waiter = ps[i].queued(spec{max: 1})
	}
	return ps
}

// awaitDeath returns when the holder's command is dead, whatever its golock may
// still have to do.
func (p pair) awaitDeath() {
	p.t.Helper()
	p.mu.Lock()
	pid := p.holder.pid
	p.mu.Unlock()
	await(p.t, "the death of the holder's command", func() bool {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		_, rest, _ := strings.Cut(string(text), ") ")
		return err != nil || strings.HasPrefix(rest, "Z")
	})
}

// finish expects that both have run.
func (p pair) finish(t *testing.T) {
	t.Helper()
	p.release()
	p.drain()
	p.check()
	inOrder(t, []*proc{p.holder, p.waiter}, "fence", func(q *proc) int64 { return q.fence })
	p.nothingLeft()
}

// lose expects that the holder has lost its slot, and that the waiter runs.
func (p pair) lose(t *testing.T) {
	t.Helper()
	if code := p.holder.code(); code != 79 {
		t.Errorf("the holder that lost its slot: %v\n%s", p.holder.state, p.report())
	}
	p.holder.killed = true // judged here
	p.drain()
	p.check()
	p.nothingLeft()
}

// killGuard kills the guard of a golock and reports whether there was one.
func (p *proc) killGuard() bool {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", p.process.Pid))
	for _, list := range lists {
		text, _ := os.ReadFile(list)
		for _, word := range strings.Fields(string(text)) {
			pid, _ := strconv.Atoi(word)
			fd, err := unix.PidfdOpen(pid, 0)
			if err != nil {
				continue
			}
			name, _ := os.ReadFile("/proc/" + word + "/comm")
			guard := strings.TrimSpace(string(name)) == "golock-guard"
			if guard {
				p.killed = true
				_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
			}
			unix.Close(fd)
			if guard {
				return true
			}
		}
	}
	return false
}

// A server that does not answer for longer than the lease: the command is dead
// before the server could give the slot to anybody.
func TestRedisServerStopped(t *testing.T) {
	server := redistest.Start(t)
	all := pairs(t, worlds(t, server, 20, shortTTL))
	from := time.Now()
	server.Stop()
	for _, p := range all {
		p.awaitDeath()
	}
	if took := time.Since(from); took > shortTTL {
		t.Errorf("the last command was dead %v after the server had stopped, TTL %v", took, shortTTL)
	}
	server.Continue()
	for _, p := range all {
		p.lose(t)
	}
}

// A server that is killed and comes back with nothing: the jobs go on, nobody
// else gets in.
func TestRedisKilledAndEmpty(t *testing.T) {
	server := redistest.Start(t)
	all := pairs(t, worlds(t, server, 5, 6*time.Second))
	for range 3 {
		server.Kill()
		server.Restart()
		for _, p := range all {
			await(t, "holder and waiter are known again", func() bool { return len(p.ls()) == 2 })
			if p.holder.isDone() || p.begun(p.waiter) {
				t.Fatalf("holder %v, waiter begun: %v\n%s", p.holder.state, p.begun(p.waiter), p.report())
			}
		}
	}
	for _, p := range all {
		p.finish(t)
	}
}

// An operator empties the database: holders put themselves back before anybody
// has asked, and the jobs go on. (Who asks in between gets in; that is not
// promised to be noticed before a third of the TTL.)
func TestRedisFlushed(t *testing.T) {
	server := redistest.Start(t)
	all := worlds(t, server, 5, 3*time.Second)
	var ps []pair
	for _, w := range all {
		s, release := w.lasting(spec{max: 1})
		ps = append(ps, pair{world: w, holder: w.start(s), release: release})
	}
	for _, p := range ps {
		p.awaitBegin(p.holder)
	}
	server.Do("FLUSHALL")
	for _, p := range ps {
		await(t, "the holder is known again", func() bool { return len(p.ls()) == 1 })
		p.waiter = p.queued(spec{max: 1})
		p.finish(t)
	}
}

// An outage that is shorter than the lease disturbs nobody.
func TestRedisBlip(t *testing.T) {
	server := redistest.Start(t)
	all := pairs(t, worlds(t, server, 5, 6*time.Second))
	server.Stop()
	time.Sleep(1500 * time.Millisecond) // the outage
	server.Continue()
	server.Do("PING")
	for _, p := range all {
		p.finish(t)
		p.mu.Lock()
		told := 0
		for _, line := range p.lines {
			if strings.Contains(line, "warning") {
				told++
			}
		}
		p.mu.Unlock()
		if told > 1 { // by the holder
			t.Errorf("%d warnings about one outage: %q", told, p.lines)
		}
	}
}

// A golock that is stopped for longer than the lease: its command is dead
// before the next one starts.
func TestRedisGolockStopped(t *testing.T) {
	server := redistest.Start(t)
	for range 2 {
		all := pairs(t, worlds(t, server, 10, shortTTL))
		for _, p := range all {
			_ = p.holder.process.Signal(syscall.SIGSTOP)
		}
		for _, p := range all {
			p.awaitBegin(p.waiter)
			<-p.waiter.done
			_ = p.holder.process.Signal(syscall.SIGCONT)
			p.lose(t)
		}
	}
}

// A crowd is served in the order of arrival, and asks the server for next to
// nothing while it waits.
func TestRedisCrowd(t *testing.T) {
	server := redistest.Start(t)
	const many = 200
	const ttl = 6 * time.Second
	for _, most := range []int{1, 3} {
		t.Run(strconv.Itoa(most), func(t *testing.T) {
			w := worlds(t, server, 1, ttl)[0]
			s, release := w.lasting(spec{max: most, weight: most})
			w.awaitBegin(w.start(s))
			var queue []*proc
			for range many {
				queue = append(queue, w.queued(spec{max: most}))
			}
			calls := func() int {
				n := 0
				for line := range strings.Lines(fmt.Sprint(server.Do("INFO", "commandstats"))) {
					var calls int
					if rest, ok := strings.CutPrefix(line, "cmdstat_eval"); ok {
						_, rest, _ = strings.Cut(rest, ":")
						_, _ = fmt.Sscanf(rest, "calls=%d", &calls)
						n += calls
					}
				}
				return n
			}
			before, from := calls(), time.Now()
			time.Sleep(ttl) // what is measured
			asked, looks := calls()-before, int(time.Since(from)*3/ttl)+1
			if most := (many + 3) * looks; asked > most {
				t.Errorf("%d waiters asked %d times in %v, at most %d expected", many, asked, time.Since(from), most)
			}
			t.Logf("%d waiters asked %d times in %v", many, asked, time.Since(from))
			release()
			w.drain()
			w.check()
			inOrder(t, queue, "fence", func(p *proc) int64 { return p.fence })
			if most == 1 {
				inOrder(t, queue, "start", func(p *proc) int64 { return p.at })
			}
			w.nothingLeft()
		})
	}
}

// The network goes away and comes back: the connections stay open, nothing
// gets through.
func TestRedisNetworkCut(t *testing.T) {
	if os.Getenv(builtVariable) == "" {
		self := exec.Command("/proc/self/exe", "-test.run=^TestRedisNetworkCut$", "-test.v")
		self.Env = append(os.Environ(), builtVariable+"="+golock)
		self.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
		if os.Geteuid() != 0 {
			self.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
			self.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		}
		out, err := self.CombinedOutput()
		t.Logf("%s", out)
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	link := func(up bool) {
		t.Helper()
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		lo, err := unix.NewIfreq("lo")
		if err != nil {
			t.Fatal(err)
		}
		if up {
			lo.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
		}
		if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo); err != nil {
			t.Fatalf("lo: %v", err)
		}
	}
	link(true)
	server := redistest.Start(t)
	all := pairs(t, worlds(t, server, 10, shortTTL))
	from := time.Now()
	link(false)
	for _, p := range all {
		p.awaitDeath()
	}
	if took := time.Since(from); took > shortTTL {
		t.Errorf("the last command was dead %v after the cut, TTL %v", took, shortTTL)
	}
	link(true)
	for _, p := range all {
		p.lose(t)
	}
}
