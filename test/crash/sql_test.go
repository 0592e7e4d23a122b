package crash_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golock/locks/sql/sqltest"
)

// This file pins exclusion, order and patience on a store in a database when
// golocks, guards, waiters, connections and servers are killed or stopped. The
// judges know nothing of the server.

// starter starts a server of one kind.
type starter func(t testing.TB, options ...string) *sqltest.Server

// onSQL runs a test with each kind of server, beside others: most of the time
// they wait.
func onSQL(t *testing.T, test func(t *testing.T, start starter)) {
	t.Parallel()
	t.Run("mariadb", func(t *testing.T) { t.Parallel(); test(t, sqltest.StartMaria) })
	t.Run("postgres", func(t *testing.T) { t.Parallel(); test(t, sqltest.StartPostgres) })
}

// sqlWorlds gives n worlds with a table each on one server: the same fault hits
// all.
func sqlWorlds(t *testing.T, s *sqltest.Server, n int, ttl time.Duration, options ...string) []*world {
	t.Helper()
	db := s.NewDatabase(t)
	return worldsAt(t, n, ttl, func(table string) string { return s.URL(db, append(options, table)...) })
}

// worldsAt gives n worlds, each with a table at a URL.
func worldsAt(t *testing.T, n int, ttl time.Duration, url func(table string) string) []*world {
	t.Helper()
	var all []*world
	for i := range n {
		w := newWorld(t)
		w.store, w.leased = url("table=w"+strconv.Itoa(i)), true
		w.always = []string{"--ttl", strconv.FormatFloat(ttl.Seconds(), 'f', -1, 64)}
		w.wanted = []string{""}
		all = append(all, w)
	}
	return all
}

// row is a holder that is told when to end, and a queue behind it.
type row struct {
	*world
	holder  *proc
	queue   []*proc
	release func()
}

func rows(t *testing.T, all []*world, length int) []row {
	t.Helper()
	var rs []row
	for _, w := range all {
		s, release := w.lasting(spec{max: 1})
		rs = append(rs, row{world: w, holder: w.start(s), release: release})
	}
	for i := range rs {
		rs[i].awaitBegin(rs[i].holder)
		for range length {
			rs[i].queue = append(rs[i].queue, rs[i].queued(spec{max: 1}))
		}
	}
	return rs
}

// undisturbed fails the test if the holder has ended or somebody else is in.
func (r row) undisturbed() {
	r.t.Helper()
	for _, p := range r.queue {
		if r.begun(p) || p.isDone() {
			r.t.Fatalf("golock %d does not wait any more (begun: %v)\n%s", p.token, r.begun(p), r.report())
		}
	}
	if r.holder.isDone() {
		r.t.Fatalf("the holder has ended: %v\n%s", r.holder.state, r.report())
	}
}

// finish expects that all have run, in their order.
func (r row) finish() {
	r.t.Helper()
	r.undisturbed()
	r.release()
	r.drain()
	r.check()
	all := append([]*proc{r.holder}, r.queue...)
	inOrder(r.t, all, "fence", func(q *proc) int64 { return q.fence })
	inOrder(r.t, all, "start", func(q *proc) int64 { return q.at })
	r.nothingLeft()
}

// lose expects that the holder has lost its slot, and that the others run.
func (r row) lose() {
	r.t.Helper()
	if code := r.holder.code(); code != 79 {
		r.t.Errorf("the holder that lost its slot: %v\n%s", r.holder.state, r.report())
	}
	r.holder.killed = true // judged here
	r.drain()
	r.check()
	inOrder(r.t, r.queue, "fence", func(q *proc) int64 { return q.fence })
	r.nothingLeft()
}

func (r row) awaitDeath() { pair{world: r.world, holder: r.holder}.awaitDeath() }

// since is the time from a moment of the monotonic clock to the start of a
// golock's command.
func (p *proc) since(from int64) time.Duration {
	p.world.t.Helper()
	p.world.awaitBegin(p)
	p.world.mu.Lock()
	defer p.world.mu.Unlock()
	return time.Duration(p.at - from)
}

// A holder is killed: its guard ends the command and gives the slot back, long
// before the lease ends. Killed waiters hold up nobody for longer than a second.
func TestSQLQueueGoesOn(t *testing.T) {
	onSQL(t, func(t *testing.T, start starter) {
		server := start(t)
		for i, r := range rows(t, sqlWorlds(t, server, 6, time.Minute), 5) {
			if i >= 2 { // two in a row, of whom the server may know or not know yet
				r.queue[0].kill()
				r.queue[1].kill()
			}
			if i >= 4 {
				time.Sleep(time.Duration(300*i) * time.Millisecond) // any moment is good
			}
			from := monotonic()
			switch i % 3 {
			case 0:
				r.holder.kill()
			case 1:
				r.release()
			case 2:
				if !r.holder.killGuard() {
					t.Fatal("no guard")
				}
			}
			r.holder.killed = true
			next := r.queue[0]
			if i >= 2 {
				next = r.queue[2]
			}
			if took := next.since(from); took > time.Second {
				t.Errorf("%d: the next one ran after %v", i, took)
			} else {
				t.Logf("%d: the next one ran after %v", i, took)
			}
			r.drain()
			r.check()
			r.nothingLeft()
		}
	})
}

// Somebody ends all connections, again and again: those of holders, of waiters,
// and in the midst of a transaction.
func TestSQLConnectionsKilled(t *testing.T) {
	onSQL(t, func(t *testing.T, start starter) {
		server := start(t)
		rs := rows(t, sqlWorlds(t, server, 3, 6*time.Second), 4)
		killed := 0
		for end := time.Now().Add(5*time.Second + campaign/20); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			killed += server.KillConnections(t, "")
			for _, r := range rs {
				r.undisturbed()
			}
		}
		for _, r := range rs {
			r.finish()
		}
		t.Logf("%d connections killed", killed)
	})
}

// The same while slots change hands.
func TestSQLConnectionsKilledInCrowd(t *testing.T) {
	onSQL(t, func(t *testing.T, start starter) {
		server := start(t)
		w := sqlWorlds(t, server, 1, 10*time.Second)[0]
		c := newCampaignOn(t, w, strategies[1])
		killed := 0
		for end := time.Now().Add(3*time.Second + campaign/20); len(c.procs) < 60 || time.Now().Before(end); {
			c.populate(8)
			killed += server.KillConnections(t, "")
			pass(c.some(200 * time.Millisecond))
		}
		c.finish()
		t.Logf("%d connections killed", killed)
	})
}

// A server that does not answer for longer than the lease: the command is dead
// before the server could give the slot to anybody.
func TestSQLServerStopped(t *testing.T) {
	onSQL(t, func(t *testing.T, start starter) {
		server := start(t)
		rs := rows(t, sqlWorlds(t, server, 8, shortTTL), 1)
		from := time.Now()
		server.Pause()
		for _, r := range rs {
			r.awaitDeath()
		}
		if took := time.Since(from); took > shortTTL {
			t.Errorf("the last command was dead %v after the server had stopped, TTL %v", took, shortTTL)
		}
		server.Resume()
		for _, r := range rs {
			r.lose()
		}
	})
}

// An outage that is a little shorter than the promise says disturbs nobody, at
// whatever moment between two renewals it begins.
func TestSQLBlip(t *testing.T) {
	const ttl = 12 * time.Second
	const promised = ttl*2/3 - ttl/6 - 3*time.Second/2
	const outage = promised - 700*time.Millisecond // a busy machine needs some of it
	onSQL(t, func(t *testing.T, start starter) {
		server := start(t)
		var rs []row
		for _, w := range sqlWorlds(t, server, 6, ttl) { // their renewals lie apart
			rs = append(rs, rows(t, []*world{w}, 1)...)
			time.Sleep(ttl / 3 / 6)
		}
		from := time.Now()
		server.Pause()
		time.Sleep(time.Until(from.Add(outage)))
		server.Resume()
		for _, r := range rs {
			r.finish()
		}
	})
}

// A golock that is stopped for longer than the lease: its guard has killed the
// command before the next one starts.
func TestSQLGolockStopped(t *testing.T) {
	onSQL(t, func(t *testing.T, start starter) {
		server := start(t)
		rs := rows(t, sqlWorlds(t, server, 6, shortTTL), 1)
		for _, r := range rs {
			_ = r.holder.process.Signal(syscall.SIGSTOP)
		}
		for _, r := range rs {
			r.awaitBegin(r.queue[0])
			<-r.queue[0].done
			_ = r.holder.process.Signal(syscall.SIGCONT)
			r.lose()
		}
	})
}

// A server that is stopped in good order, or killed, and comes back: the jobs
// go on, waiters keep their order, and who asks meanwhile is told why nothing is
// granted.
func TestSQLRestart(t *testing.T) {
	onSQL(t, func(t *testing.T, start starter) {
		server := start(t)
		all := sqlWorlds(t, server, 5, 9*time.Second)
		idle := all[4]
		idle.store += "&quarantine=6"
		rs := rows(t, all[:4], 3)
		if p := idle.start(spec{max: 1}); p.code() != 0 {
			t.Fatalf("a free slot: %v", p.state)
		}
		for i := range 3 {
			if i%2 == 0 {
				server.Kill()
			} else {
				server.Stop()
			}
			if i == 2 {
				time.Sleep(time.Second) // it is away for some time
			}
			server.Restart(t)
			if i == 0 {
				if p := idle.start(spec{max: 1, flags: []string{"-n"}}); p.code() != 75 || !within(limit, func() bool { return idle.heard("", "has just come back") }) {
					t.Errorf("-n at a free slot in quarantine: %v\n%s", p.state, idle.report())
				}
				if p := idle.start(spec{max: 1, flags: []string{"-w", "20"}}); p.code() != 0 {
					t.Errorf("-w at a free slot in quarantine: %v\n%s", p.state, idle.report())
				}
			}
			for _, r := range rs {
				if !within(limit, func() bool { return len(r.ls()) == 4 }) {
					t.Fatalf("holder and waiters should be known, there are: %+v\n%s\n%s", r.ls(), r.report(), server.Log())
				}
				r.undisturbed()
			}
		}
		for _, r := range rs {
			r.finish()
		}
		idle.drain()
		idle.check()
	})
}

// While the server is away a waiter does not give up before its time.
func TestSQLAwayWhileWaiting(t *testing.T) {
	onSQL(t, func(t *testing.T, start starter) {
		server := start(t)
		w := sqlWorlds(t, server, 1, 2*time.Second)[0]
		s, release := w.lasting(spec{max: 1})
		w.awaitBegin(w.start(s))
		long := w.queued(spec{max: 1, flags: []string{"-w", "60"}})
		short := w.queued(spec{max: 1, flags: []string{"-w", "6"}})
		server.Kill()
		w.procs[0].killed = true // it loses its slot
		if code := short.code(); code != 69 {
			t.Errorf("-w 6 without a server: %v\n%s", short.state, w.report())
		}
		short.killed = true // judged here
		server.Restart(t)
		if code := long.code(); code != 0 {
			t.Errorf("-w 60: %v\n%s", long.state, w.report())
		}
		release()
		w.drain()
		w.check()
		w.nothingLeft()
	})
}

// The server's clock, or golock's, is off by an hour: only that one clock goes
// on steadily counts.
func TestSQLClocksApart(t *testing.T) {
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Fatalf("%v; run: make deps", err)
	}
	dir, err := os.MkdirTemp("", "golock-clock-") // the server has a user of its own, who must get at it
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	library := filepath.Join(dir, "shift.so")
	if out, err := exec.Command("gcc", "-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o", library, filepath.Join("testdata", "shift.c")).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, shift := range []string{"-3600", "3600"} {
		for name, start := range map[string]starter{"mariadb": sqltest.StartMaria, "postgres": sqltest.StartPostgres} {
			t.Run(name+shift, func(t *testing.T) {
				t.Setenv("LD_PRELOAD", library)
				t.Setenv("CLOCK_SHIFT", shift)
				server := start(t)
				os.Unsetenv("LD_PRELOAD")
				clock := server.Exec(t, "", sqlOf(server, "SELECT UNIX_TIMESTAMP(SYSDATE(6))", "SELECT extract(epoch FROM clock_timestamp())"))
				at, err := strconv.ParseFloat(clock[0][0], 64)
				off, _ := strconv.ParseFloat(shift, 64)
				if err != nil || at-float64(time.Now().Unix())-off > 60 || at-float64(time.Now().Unix())-off < -60 {
					t.Fatalf("the server's clock is not off by %s s: %v", shift, clock)
				}
				rs := rows(t, sqlWorlds(t, server, 2, shortTTL), 2)
				time.Sleep(shortTTL * 3 / 2) // a lease that is not renewed would have ended
				rs[0].finish()
				lost := rs[1]
				from := monotonic()
				lost.holder.killGuard()
				lost.holder.kill()
				lost.holder.killed = true
				if took := lost.queue[0].since(from); took > shortTTL+time.Second {
					t.Errorf("a lease that nobody renewed was free after %v", took)
				}
				lost.drain()
				lost.check()
				lost.nothingLeft()
			})
		}
	}
}

// golock itself has other clocks than the rest of the machine: those since its
// start are ahead by a day, as after a suspend.
func TestSQLTimeNamespace(t *testing.T) {
	onSQL(t, func(t *testing.T, start starter) {
		server := start(t)
		w := sqlWorlds(t, server, 1, shortTTL)[0]
		r := rows(t, []*world{w}, 1)[0]
		unshare := []string{"--time", "--fork", "--boottime", "86400", "--monotonic", "86400"}
		if os.Geteuid() != 0 {
			unshare = append(unshare, "--user", "--map-root-user")
		}
		cmd := exec.Command("unshare", append(unshare, golock, "run", "--store", w.store, "--name", "n", "--ttl", "2", "-v", "--", "sh", "-c", "cut -d. -f1 /proc/uptime; sleep 3")...)
		cmd.Env = w.env
		var text strings.Builder
		cmd.Stdout, cmd.Stderr = &text, &text
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		await(t, "it queues", func() bool { return len(w.ls()) == 3 })
		last := w.queued(spec{max: 1})
		r.release()
		if err := cmd.Wait(); err != nil {
			t.Errorf("in another time namespace: %v\n%s", err, text.String())
		}
		uptime := 0
		for line := range strings.Lines(text.String()) {
			if n, err := strconv.Atoi(strings.TrimSpace(line)); err == nil {
				uptime = n
			}
		}
		if uptime < 86400 {
			t.Errorf("the clocks were not shifted: %s", text.String())
		}
		if code := last.code(); code != 0 {
			t.Errorf("the one behind: %v\n%s", last.state, w.report())
		}
		w.drain()
		w.check()
		inOrder(t, []*proc{r.holder, r.queue[0], last}, "fence", func(p *proc) int64 { return p.fence })
		w.nothingLeft()
	})
}

// sqlOf chooses what is for a server's kind.
func sqlOf(s *sqltest.Server, maria, postgres string) string {
	if s.Kind == "postgres" {
		return postgres
	}
	return maria
}
