//go:build integration

package crash_test

import (
	"encoding/json"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golock/locks/etcd/etcdtest"
	"golock/locks/lease"
	"golock/locks/redis/redistest"
	"golock/locks/sql/sqltest"
	"golock/test/testkit"
)

// Exclusion, order and waiting on networked stores when golocks, watchdogs, waiters and servers are
// killed or stopped.

const (
	shortTTL  = 4 * time.Second
	lesserTTL = 6 * time.Second
	// longTTL is so long that no test waits for the look of a waiter at a third of it: a waiter that
	// is served has been woken.
	longTTL = 10 * time.Minute
)

// server is one that a test may stop, kill and restart.
type server struct {
	url                          func(i int, quarantine string) string // of one store of many
	pause, resume, kill, restart func()
	sql                          *sqltest.Server // nil: Redis
}

type sqlStarter func(t testing.TB, options ...string) *sqltest.Server

var sqlStarters = map[string]sqlStarter{"mariadb": sqltest.StartMaria, "postgres": sqltest.StartPostgres}

// onSQL runs a test with each kind of database.
func onSQL(t *testing.T, test func(t *testing.T, start sqlStarter)) {
	t.Parallel()
	testkit.Each(t, sqlStarters, func(t *testing.T, _ string, start sqlStarter) {
		test(t, start)
	})
}

func onServers(t *testing.T, test func(t *testing.T, s *server)) {
	onSQL(t, func(t *testing.T, start sqlStarter) { test(t, sqlServer(t, start(t))) })
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		r := redistest.Start(t)
		test(t, &server{
			url: func(i int, quarantine string) string {
				return r.URL("prefix=w"+strconv.Itoa(i), "quarantine="+quarantine)
			},
			pause: r.Pause, resume: r.Resume, kill: r.Kill, restart: r.Restart,
		})
	})
}

func sqlServer(t *testing.T, s *sqltest.Server) *server {
	db := s.NewDatabase(t)
	return &server{
		url: func(i int, quarantine string) string {
			return s.URL(db, "table=w"+strconv.Itoa(i), "quarantine="+quarantine)
		},
		pause: s.Pause, resume: s.Resume, kill: s.Kill, restart: func() { s.Restart(t) }, sql: s,
	}
}

// leasedStores give the URL of an empty one of each kind.
var leasedStores = map[string]func(t *testing.T) string{
	"redis":    func(t *testing.T) string { return redistest.StoreURL(t, "quarantine=0s") },
	"mariadb":  func(t *testing.T) string { return sqlURL(t, sqltest.Maria(t)) },
	"postgres": func(t *testing.T) string { return sqlURL(t, sqltest.Postgres(t)) },
	"etcd":     func(t *testing.T) string { return etcdtest.StoreURL(t) },
	"mkdir":    func(t *testing.T) string { return "mkdir://" + testkit.Place(t, 0o755) },
}

func sqlURL(t *testing.T, s *sqltest.Server) string { return s.URL(s.NewDatabase(t), "quarantine=0s") }

func leasing(t *testing.T, url string, ttl time.Duration) *world {
	w := newWorld(t, url)
	w.always = []string{"-v", "--ttl", strconv.FormatFloat(ttl.Seconds(), 'f', -1, 64)}
	return w
}

// row is a world with a holder, and a queue behind it.
type row struct {
	*world
	holder *proc
	queue  []*proc
}

func newRow(w *world, length int) row {
	w.T.Helper()
	r := row{world: w, holder: w.holding()}
	for range length {
		r.queue = append(r.queue, w.queued())
	}
	return r
}

// undisturbed fails the test if the holder has ended or somebody else is in.
func (r row) undisturbed() {
	r.T.Helper()
	for _, p := range r.queue {
		if r.begun(p) || !p.Running() {
			r.T.Fatalf("golock %d does not wait any more: %s", p.token, r.report())
		}
	}
	if !r.holder.Running() {
		r.T.Fatalf("the holder has ended: %s", r.report())
	}
}

// renewed waits for two renewals of the holder: on Redis the first comes as soon as it hears
// of events.
func (r row) renewed() {
	r.T.Helper()
	left := func() int {
		var list []struct {
			Left int `json:"expires_in_ms"`
		}
		out := r.Golock("ls", "job", "--json", "--store", r.Store).Run().Stdout
		if err := json.Unmarshal([]byte(out), &list); err != nil || len(list) == 0 {
			r.T.Fatalf("golock ls: %q, %v", out, err)
		}
		return list[0].Left
	}
	last, times := left(), 0
	r.Eventually("the lease is renewed", func() bool {
		before := last
		if last = left(); last > before {
			times++
		}
		return times == 2
	})
}

// served releases the holder and expects that all run, in their order.
func (r row) served() {
	r.T.Helper()
	r.undisturbed()
	r.holder.release()
	r.finishInOrder(append([]*proc{r.holder}, r.queue...)...)
}

// A machine with golock, watchdog, command and server is suspended for longer than the lease. In
// whatever order they wake, the command is killed before the server answers. CLOCK_BOOTTIME is a day
// ahead, as after an earlier suspend.
// Slow: a lease has to end.
func TestHostSuspended(t *testing.T) {
	onServers(t, func(t *testing.T, s *server) {
		type host struct {
			row
			processes []int
		}
		var hosts []host
		orders := [][]int{{0, 1, 2}, {1, 2, 0}, {2, 0, 1}}
		for i := range orders {
			w := leasing(t, s.url(i, "0s"), lesserTTL)
			p, c := w.prepare(-time.Microsecond)
			p.Process = c.By("unshare", "--time", "--boottime", "86400", "--fork", "--kill-child", "--").Start()
			w.awaitBegin(p)
			r := row{world: w, holder: p, queue: []*proc{w.queued()}}
			golock := testkit.Children(p.PID)[0]
			hosts = append(hosts, host{r, []int{golock, testkit.GuardOf(golock), p.commandPID()}})
		}
		s.pause() // first: a server that goes on gives the slots of the stopped to others
		for _, h := range hosts {
			for _, pid := range h.processes { // golock first: it would continue the watchdog
				h.Signal(pid, syscall.SIGSTOP)
				h.Eventually("it is stopped", func() bool { return testkit.Stopped(pid) })
			}
		}
		time.Sleep(lesserTTL)
		// Meanwhile a run with -n gives up in time, although the kernel takes its connection. Two seconds are
		// longer on a machine that is short of processors.
		began := time.Now()
		hosts[0].Job("--name", "other", "-n", "--", "true").Run().Expect(t, 69, "cannot be reached")
		testkit.Lasted(t, began, 2*time.Second, lease.FirstAnswer-time.Second)
		for i, h := range hosts {
			for _, which := range orders[i] {
				h.Signal(h.processes[which], syscall.SIGCONT)
			}
			h.holder.awaitDeath()
		}
		s.resume()
		for _, h := range hosts {
			h.holder.Expects(79, "the slot could not be kept")
			h.holder.judged = true
			h.finishInOrder(h.queue...)
		}
	})
}

// A server is killed and comes back, empty or with its data: the jobs go on, waiters keep their order.
// A run with -n gets a slot when the quarantine is over; if that is long, it is refused with the reason.
// Slow: -n waits for the end of a quarantine.
func TestRestart(t *testing.T) {
	onServers(t, func(t *testing.T, s *server) {
		r := newRow(leasing(t, s.url(0, "3s"), time.Minute), 2)
		idle := leasing(t, s.url(1, "20m"), shortTTL)
		brief := leasing(t, s.url(2, "3s"), shortTTL)
		if s.sql != nil { // a new table has no past, a new Redis may have
			idle.start().Expects(0)
			brief.start().Expects(0)
		}
		for i := range 2 {
			if s.sql != nil && i == 0 {
				s.sql.Stop() // in good order
			} else {
				s.kill()
			}
			s.restart()
			brief.start("-n").Expects(0)
			r.Eventually("holder and waiters are known", func() bool { return len(r.List("job")) == 3 })
			r.undisturbed()
		}
		r.served()
		for _, flags := range [][]string{{"-n"}, {"--max-queue", "0"}, {"-w", "0.5"}} {
			idle.refused(69, flags...)
		}
		if !idle.heard("gives no slots for another", "") {
			t.Errorf("at a free slot in quarantine: %s", idle.report())
		}
	})
}

// While the server is away a holder loses its slot, and a waiter does not give up before its --wait is
// over. Then the code is 69.
// Slow: the time of one waiter has to pass.
func TestAwayWhileWaiting(t *testing.T) {
	onServers(t, func(t *testing.T, s *server) {
		w := leasing(t, s.url(0, "0s"), shortTTL)
		holder := w.holding()
		long := w.queued("-w", "10m")
		short := w.queued("-w", "10")
		s.kill()
		holder.judged, short.judged = true, true
		if took := short.Expects(69, "cannot be reached").Took; took < 10*time.Second {
			t.Errorf("gave up after %v, want 10 s", took)
		}
		holder.Expects(79, "the slot could not be kept")
		s.restart()
		long.Expects(0)
		w.finish()
	})
}

func (s *server) choose(maria, postgres string) string {
	if s.sql.Kind == "postgres" {
		return postgres
	}
	return maria
}
