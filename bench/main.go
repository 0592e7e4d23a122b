// Command bench measures golock's local store beside flock(1), setlock(8),
// s6-setlock(1), chpst(8) and sem(1), its Redis store beside a client that polls
// and beside etcdctl(1), its SQL stores beside the locks that MariaDB and
// PostgreSQL have built in, and its care for a command beside timeout(1), tini
// and dumb-init: in one run, on one machine, in interleaved rounds. It prints
// tables and, with -markdown, writes the pages docs/benchmarks.md and
// docs/scale.md, their drawings, and the results for later runs to be compared
// with.
//
//	go run ./bench            everything, about twenty-five minutes
//	go run ./bench -quick     everything with few rounds
//	go run ./bench -only start,handoff
//	go run ./bench -only redis   all that begin with redis-; so etcd, mysql, postgres, scale
//	go run ./bench -scale     the same as -only scale
//	go run ./bench -check     exit code 2 if something became worse than what is committed
//
// Every figure it prints was measured in that run. Whatever it started or
// created is gone when it ends, whichever way it ends, kill -9 excepted.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// plan says how much is measured.
type plan struct {
	quick      bool
	start      int // rounds of the start-up comparison
	startSem   int // sem takes part in every startSem-th round only: it is 50 times slower
	burst      int // rounds
	burstJobs  int
	burstSem   int // jobs of sem's burst
	handoff    int // rounds
	waiters    int // waiting at a hand-off
	semWaiters int
	memory     int // samples
	window     int // seconds a sleeping waiter is watched
	crash      int // rounds
	many       int // waiters on one name
	manyRounds int
	manyIdle   int // seconds
	redis      redisPlan
	sql        sqlPlan
	supervise  int // rounds of start and signal
	stores     storesPlan
	etcd       etcdPlan
	scale      scalePlan
}

func newPlan(quick bool, rounds, many int) plan {
	p := plan{
		start: 600, startSem: 20, burst: 15, burstJobs: 200, burstSem: 20, handoff: 15, waiters: 100, semWaiters: 10,
		memory: 5, window: 10, crash: 100, many: 1000, manyRounds: 3, manyIdle: 5,
		redis:     redisPlan{start: 300, trips: 15, single: 60, queue: 10, waiters: 50, burst: 10, jobs: 50, section: 5, idle: 100, settle: 3, ttl: 15, memory: 5, link: 600},
		sql:       sqlPlan{start: 300, single: 60, long: 6, queue: 10, waiters: 50, burst: 10, jobs: 50, section: 5, idle: []int{16, 100}, sessions: 80, settle: 3, ttl: 15, memory: 5, link: 600},
		supervise: 200,
		stores:    storesPlan{start: 150, handoff: 5, waiters: 16, burst: 3, jobs: 50},
		etcd:      etcdPlan{start: 150, single: 30, queue: 5, waiters: 50, burst: 3, jobs: 50, section: 5, idle: 100, settle: 3, ttl: 15, memory: 5},
		scale: scalePlan{crowds: []int{16, 100, 400, 1000}, rounds: []int{5, 3, 2, 1}, ttl: 30, settle: 3, names: 10000, rows: 2000, more: 200,
			renewals: 1000, tickets: 10000, seconds: 3, lines: 8},
	}
	if p.quick = quick; quick {
		p.start, p.startSem, p.burst, p.handoff, p.memory, p.window, p.crash = 100, 25, 3, 3, 2, 3, 20
		p.many, p.manyRounds, p.manyIdle = 200, 1, 2
		r := &p.redis
		r.start, r.trips, r.single, r.queue, r.burst, r.settle, r.ttl, r.memory, r.link = 50, 5, 10, 1, 1, 1, 3, 2, 100
		q := &p.sql
		q.start, q.single, q.long, q.queue, q.burst, q.settle, q.ttl, q.memory, q.link = 50, 10, 2, 1, 1, 1, 6, 2, 100
		p.supervise = 30
		p.stores = storesPlan{start: 20, handoff: 2, waiters: 16, burst: 1, jobs: 20}
		p.etcd = etcdPlan{start: 20, single: 5, queue: 1, waiters: 20, burst: 1, jobs: 20, section: 5, idle: 30, settle: 1, ttl: 6, memory: 2}
		p.scale = scalePlan{crowds: []int{16, 100}, rounds: []int{2, 1}, ttl: 30, settle: 3, names: 1000, rows: 200, more: 30, renewals: 100, tickets: 1000, seconds: 1, lines: 8}
	}
	if rounds > 0 {
		p.start, p.burst, p.handoff, p.crash = rounds, max(3, rounds/40), max(3, rounds/40), max(10, rounds/6)
		r := &p.redis
		r.start, r.link, r.single, r.queue, r.burst = rounds, rounds, max(3, rounds/10), max(1, rounds/60), max(3, rounds/60)
		q := &p.sql
		q.start, q.link, q.single, q.long, q.queue, q.burst = rounds, rounds, r.single, max(2, rounds/60), r.queue, r.burst
	}
	if many > 0 {
		p.many = many
	}
	return p
}

// experiments in the order they are run and printed. Those of scale have a page
// of their own.
var experiments = []struct {
	name string
	run  func(*bench) error
}{
	{"start", (*bench).startUp},
	{"burst", (*bench).burst},
	{"handoff", (*bench).handOff},
	{"memory", (*bench).memory},
	{"wakeups", (*bench).wakeUps},
	{"crash", (*bench).crash},
	{"many", (*bench).many},
	{"supervise", (*bench).supervise},
	{"stores", (*bench).stores},
	{"redis-start", (*bench).redisStart},
	{"redis-handoff", (*bench).redisHandOff},
	{"redis-burst", (*bench).redisBurst},
	{"redis-idle", (*bench).redisIdle},
	{"redis-memory", (*bench).redisMemory},
	{"redis-link", (*bench).redisLink},
	{"etcd-start", (*bench).etcdStart},
	{"etcd-handoff", (*bench).etcdHandOff},
	{"etcd-burst", (*bench).etcdBurst},
	{"etcd-idle", (*bench).etcdIdle},
	{"etcd-memory", (*bench).etcdMemory},
	{"mysql-start", on(mariaDB{}, (*bench).sqlStart)},
	{"mysql-handoff", on(mariaDB{}, (*bench).sqlHandOff)},
	{"mysql-burst", on(mariaDB{}, (*bench).sqlBurst)},
	{"mysql-idle", on(mariaDB{}, (*bench).sqlIdle)},
	{"mysql-memory", on(mariaDB{}, (*bench).sqlMemory)},
	{"postgres-start", on(postgreSQL{}, (*bench).sqlStart)},
	{"postgres-handoff", on(postgreSQL{}, (*bench).sqlHandOff)},
	{"postgres-burst", on(postgreSQL{}, (*bench).sqlBurst)},
	{"postgres-idle", on(postgreSQL{}, (*bench).sqlIdle)},
	{"postgres-memory", on(postgreSQL{}, (*bench).sqlMemory)},
	{"sql-link", (*bench).sqlLink},
	{"scale-line", (*bench).scaleLine},
	{"scale-rate", (*bench).scaleRate},
	{"scale-names", (*bench).scaleNames},
	{"scale-tickets", (*bench).scaleTickets},
}

// on is a measurement on one kind of server.
func on(kind sqlKind, run func(*bench, sqlKind) error) func(*bench) error {
	return func(b *bench) error { return run(b, kind) }
}

func main() {
	var names []string
	for _, e := range experiments {
		names = append(names, e.name)
	}
	quick := flag.Bool("quick", false, "few rounds, for a look; p99 then means the worst seen")
	only := flag.String("only", "", "`list` of measurements, of "+strings.Join(names, ",")+"; redis is all that begin so, and etcd, mysql, postgres, scale")
	scale := flag.Bool("scale", false, "the same as -only scale")
	rounds := flag.Int("rounds", 0, "start-up rounds; the other measurements follow in proportion")
	many := flag.Int("many", 0, "waiters of the many-waiters measurement (default 1000, quick 200)")
	golock := flag.String("golock", "", "measure this `binary` instead of building one")
	markdown := flag.String("markdown", "", "also write the page to this `file`, and beside it the page of scale, drawings and results")
	against := flag.String("against", "", "compare with the results in this `file`; without it with the committed ones, if there are any")
	check := flag.Bool("check", false, "end with exit code 2 if something became worse")
	flag.Parse()
	if *scale && *only == "" {
		*only = "scale"
	}

	chosen := map[string]bool{}
	for _, name := range names {
		chosen[name] = *only == ""
	}
	if *only != "" {
		for name := range strings.SplitSeq(*only, ",") {
			known := false
			for _, full := range names {
				if full == name || strings.HasPrefix(full, name+"-") {
					chosen[full], known = true, true
				}
			}
			if !known {
				fail(64, fmt.Errorf("-only %s: not one of %s", name, strings.Join(names, ",")))
			}
		}
	}
	if flag.NArg() > 0 || *rounds < 0 || *many < 0 {
		flag.Usage()
		os.Exit(64)
	}

	// The measuring goroutine keeps its thread, and the collector runs between
	// measurements, not in them.
	runtime.LockOSThread()
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(1 << 30)

	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT)
	defer stop()
	b, err := newBench(newPlan(*quick, *rounds, *many), *golock, func(prefix string) bool {
		return slices.ContainsFunc(names, func(name string) bool { return chosen[name] && strings.HasPrefix(name, prefix) })
	})
	if err != nil {
		fail(69, err)
	}
	// A signal ends the measuring by ending what is being measured: the start
	// or the wait under way then fails with errStopped.
	context.AfterFunc(ctx, b.close)

	failed := b.measure(chosen)
	b.close()
	if ctx.Err() != nil || errors.Is(failed, errStopped) {
		fail(130, errors.New("interrupted; what was started is ended and the temporary directory removed"))
	}
	var bad []change
	for _, page := range b.pages {
		if page.sections == nil {
			continue
		}
		b.report = page
		fmt.Println()
		fmt.Print(text(b.verdicts()))
		before, ok, err := readResults(*against, "docs/"+page.name+".json")
		if err != nil {
			fail(1, err)
		}
		if ok {
			all := compare(before.Measures, b.measures)
			page.changed = append(page.changed, changes(all, before))
			bad = append(bad, worse(all)...)
			fmt.Println()
			fmt.Print(text(page.changed[0]))
		}
		if *markdown != "" {
			if err := b.writePage(*markdown); err != nil {
				fail(1, err)
			}
		}
	}
	for _, c := range bad {
		fmt.Fprintf(os.Stderr, "bench: worse than before: %s: %.4g %s, was %.4g\n", c.What, c.Value, c.Unit, c.was)
	}
	if failed != nil {
		fail(1, failed)
	}
	if *check && bad != nil {
		os.Exit(2)
	}
}

// measure runs the chosen experiments and prints each table when it is there. An
// error is told in the place of the tables; the others are measured all the same.
// A panic in one still cleans up.
func (b *bench) measure(chosen map[string]bool) (failed error) {
	defer func() {
		if r := recover(); r != nil {
			b.close()
			panic(r)
		}
	}()
	b.about = b.machine()
	fmt.Print(text(b.about))
	for _, e := range experiments {
		if !chosen[e.name] {
			continue
		}
		begun := time.Now()
		fmt.Fprintf(os.Stderr, "bench: %s ...\n", e.name)
		b.report = b.pages[0]
		if strings.HasPrefix(e.name, "scale-") {
			b.report = b.pages[1]
		}
		n := len(b.sections)
		if err := e.run(b); errors.Is(err, errStopped) {
			return err
		} else if err != nil {
			// What else there is to measure is not lost for it.
			failed = errors.Join(failed, fmt.Errorf("%s: %w%s", e.name, err, b.logTail()))
			fmt.Fprintf(os.Stderr, "bench: %s: %v%s\n", e.name, err, b.logTail())
			b.sections = append(b.sections, section{
				title: "Failed: " + e.name, how: fmt.Sprintf("This measurement ended with an error, and its tables are missing: %v.", err),
			})
		}
		for _, s := range b.sections[n:] {
			fmt.Println()
			fmt.Print(text(s))
		}
		b.endStrays()
		runtime.GC()
		fmt.Fprintf(os.Stderr, "bench: %s took %.0f s\n", e.name, time.Since(begun).Seconds())
	}
	return failed
}

func fail(code int, err error) {
	fmt.Fprintln(os.Stderr, "bench:", err)
	os.Exit(code)
}

// commandLine is how this run can be repeated.
func commandLine() string {
	return strings.Join(append([]string{"go", "run", "./bench"}, os.Args[1:]...), " ")
}
