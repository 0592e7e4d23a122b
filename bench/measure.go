package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"
)

// sample is what one round measured with one tool, by the names of metrics.
type sample map[string]float64

// measureStart is an uncontended run of /bin/true, on a lock that the tool has taken
// before, as a cron job does. On a new name golock has to read /proc/locks, and for
// that the kernel waits until each CPU has switched tasks: up to 20 ms if all are busy.
func measureStart(b *bench, t *tool, _ int) sample {
	l, used := b.used[t.name]
	if !used || t.newName {
		l = b.newLock()
		b.used[t.name] = l
	}
	argv := t.run(l, "/bin/true")
	if t.shell {
		if b.shell == nil {
			b.shell = b.startShell()
		}
		return sample{"wall": b.shell.run(argv)}
	}
	p := b.start(argv)[0]
	r := p.succeed()
	return sample{"wall": r.ended - p.begun, "CPU": r.cpu, "max RSS": r.rss}
}

// measureBurst starts many runs at once on one lock. Each command lasts for the given milliseconds.
func measureBurst(section int) func(b *bench, t *tool, jobs int) sample {
	return func(b *bench, t *tool, jobs int) sample {
		l := b.newLock()
		var commands [][]string
		for n := range jobs {
			command := b.section(l, n)
			if section > 0 {
				command = append(command, strconv.Itoa(section))
			}
			commands = append(commands, t.run(l, command...))
		}
		started := b.start(commands...)
		end := 0.0
		for _, p := range started {
			end = max(end, p.succeed().ended)
		}
		readRecords(t, l, jobs)
		return sample{"total": end - started[0].begun}
	}
}

// measureHandOff queues waiters one by one behind a holder, which then ends. It
// stays for a random part of 100 ms more: a client that polls must not be met
// in the same moment of its pause each time.
func measureHandOff(b *bench, t *tool, waiters int) sample {
	q := b.newQueue(t)
	for range waiters {
		q.add(b, 1)
	}
	time.Sleep(rand.N(100 * time.Millisecond))
	records, _ := q.finish()
	gaps, inversions := gapsOf(records)
	worst, swapped := slices.Max(gaps), float64(inversions)
	return sample{"gap": median(gaps), "worst gap": worst, "inversions": swapped}
}

// settle is how long waiters are left alone before they are watched: a start has
// a tail of timers that run out and threads that go to sleep.
const settle = 2 * time.Second

// measureWaiting looks at one that holds and one that waits while nothing
// happens: their memory, and the context switches of all threads.
func measureWaiting(b *bench, t *tool, seconds int) sample {
	q := b.newQueue(t)
	q.add(b, 1)
	time.Sleep(settle)
	s := sample{}
	for state, pid := range map[string]int{"holding": q.pid, "waiting": q.waiters[0].pid} {
		memory := readFields(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		s["RSS, "+state] = float64(memory["Rss"]) / 1024
		s["private, "+state] = float64(memory["Private_Clean"]+memory["Private_Dirty"]) / 1024
	}
	before := switchesOf(q.waiters[0].pid)
	time.Sleep(time.Duration(seconds) * time.Second)
	s["wake-ups"] = float64(switchesOf(q.waiters[0].pid) - before)
	q.finish()
	return s
}

const (
	eager    = 8                // so many waiters join at a time: more would overload a server
	restFrom = 100              // queues of at least this length are also watched at rest
	restTime = 20 * time.Second // an SQL waiter prolongs its place once in 2/3 of 30 s

	// restAfter is when a line is at rest: waiters that poll look more and more rarely.
	restAfter = 20 * time.Second
)

// measureLine lets a line grow, watches it at rest, and lets it go.
func measureLine(b *bench, t *tool, waiters int) sample {
	q, s := b.newQueue(t), sample{}
	for len(q.waiters) < waiters {
		q.add(b, min(eager, waiters-len(q.waiters)))
	}
	if waiters >= restFrom {
		time.Sleep(restAfter)
		clients, server := q.cpu()
		begun := now()
		time.Sleep(restTime)
		clientsAfter, serverAfter := q.cpu()
		seconds := (now() - begun) / 1e3
		s["client CPU at rest"] = (clientsAfter - clients) / seconds / float64(waiters)
		s["server CPU at rest"] = (serverAfter - server) / seconds
	}
	clients, server := q.cpu()
	records, used := q.finish()
	s["server CPU"] = (t.serverCPU() - server) / float64(waiters)
	s["client CPU"] = (used - clients) / float64(waiters)
	gaps, _ := gapsOf(records)
	s["gap"], s["worst gap"] = median(gaps), slices.Max(gaps)
	s["grants"] = float64(waiters) / (records[waiters].end - records[0].end) * 1e3
	if t.serverPID == nil {
		delete(s, "server CPU")
		delete(s, "server CPU at rest")
	}
	return s
}
