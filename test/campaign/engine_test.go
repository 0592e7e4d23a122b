//go:build integration

package campaign_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks/locktest/server"
	"golock/locks/redis/redistest"
	"golock/locks/sql/sqltest"
	"golock/test/testkit"
)

// The stores: what they promise, which requests and faults make sense, and which faults are made
// although the store makes no promise about them.

type engine struct {
	name   string
	leased bool
	queue  bool // order, fences, slots for all; removed files are noticed
	server bool // hosts have clocks of their own
	rows   bool // a database: a step of one that is stopped may hold up the others

	revisions  bool // etcd: fences are no times
	oldLeaders bool // etcd: a leader that stood still may revoke leases that its successor has prolonged

	pace
	mixes  []mix
	faults []kind   // of processes
	places []kind   // of what else there is
	beyond []kind   // not promised to be harmless
	short  []uint64 // the rounds that are played where nobody says for how long
	deep   []uint64 // more of them, with LOCKTEST_DEPTH
	open   func(t *testing.T, e *engine) site
}

// site is where the locks of rounds are.
type site interface {
	// begin makes ready for a round.
	begin(p *plan) error
	// url is that of a name for a host; for -1, without anything in between.
	url(name, host int) string
	// name is what --name says.
	name(name int) string
	// enter is a command line that runs a golock on a host; nil: the golock itself does.
	enter(host int) []string
	// fault makes one and returns when it is over. It tells whom it hits (a host,
	// -1: all), and whether it could be made.
	fault(f planned) (host int, ok bool)
	// skewed reports whether there is another wall clock than this machine's.
	skewed() bool
}

const quarantine = 3 * time.Second // the default of the stores

// hosts start golocks, each with its own way to the server and, there, its own clock since boot.
const hosts = 3

var (
	noLease    = []time.Duration{0}
	leaseTimes = []time.Duration{3 * time.Second, 3 * time.Second, 6 * time.Second}

	kernelPace = pace{ttls: noLease, youth: 6 * time.Millisecond, window: 1500 * time.Millisecond, names: 3, each: 30,
		lasts: 25 * time.Millisecond, long: 300 * time.Millisecond, hits: 30, outages: 2}
	filePace = pace{ttls: leaseTimes, youth: 30 * time.Millisecond, window: 5 * time.Second, names: 3, each: 24,
		lasts: 250 * time.Millisecond, long: 3 * time.Second, hits: 20, outages: 1}
	redisPace = pace{ttls: leaseTimes, youth: 30 * time.Millisecond, window: 6 * time.Second, names: 4, each: 24,
		lasts: 250 * time.Millisecond, long: 3 * time.Second, hits: 24, outages: 3}

	// A partition is over when its servers have found together again, which takes ten seconds.
	sentinelPace = pace{ttls: leaseTimes, youth: 40 * time.Millisecond, window: 8 * time.Second, names: 3, each: 20,
		lasts: 250 * time.Millisecond, long: 3 * time.Second, hits: 16, outages: 2}

	// After each of its outages a cluster finds a leader, which takes a second or two.
	quorumPace = pace{ttls: leaseTimes, youth: 40 * time.Millisecond, window: 8 * time.Second, names: 3, each: 20,
		lasts: 250 * time.Millisecond, long: 3 * time.Second, hits: 16, outages: 3}

	onAll = []kind{killHolder, killHolder, killWaiter, killEnding, killEnding, killCommand, killPair,
		stopHolder, stopWaiter, stopCommand, term, interrupt, suspend}
	onLeased = append([]kind{killGuard, killBoth, stopGuard, stopBoth, stopTree, stopThenKill, killStopped}, onAll...)
	onServer = []kind{serverStop, serverStop, connections, netCut, netFreeze, netFreeze, netDeaf, netRefuse, netDelay}
	onRedis  = append([]kind{serverEmpty, serverEmpty, serverMemory}, onServer...)
	onQuorum = []kind{serverStop, serverStop, serverKill, serverKill, netSplit, netSplit, netSplit, majorityStop}
	onSQL    = append([]kind{serverKill, serverKill}, onServer...)

	allMixes = []mix{mutex, three, readers, priorities, trees, changingMax, holds, replacements, sixteen}
)

var engines = []*engine{
	{name: "local", queue: true, pace: kernelPace, mixes: allMixes, faults: onAll, places: []kind{diskFull, removeFiles},
		short: []uint64{2187}, deep: []uint64{5998}, open: openDir},
	kernelFile("flock", readers, 1000),
	onlyDeep(kernelFile("fcntl", readers, 219)), // it differs from flock in one system call
	kernelFile("bind", threeLight, 3709),
	leaseFiles("mkdir", 2816),
	onlyDeep(leaseFiles("symlink", 1569)), // they differ from mkdir in one system call
	onlyDeep(leaseFiles("excl", 241)),
	{name: "redis", leased: true, queue: true, server: true, pace: redisPace, mixes: allMixes,
		faults: onLeased, places: onRedis, beyond: []kind{serverFlush, serverClock},
		short: []uint64{5661}, deep: []uint64{3763}, open: openRedis},
	// Its failovers are those of TestFailover, all else is Redis.
	onlyDeep(&engine{name: "sentinel", leased: true, queue: true, server: true, pace: sentinelPace, mixes: allMixes,
		faults: onLeased, places: []kind{netSplit}, short: []uint64{184}, open: openSentinel}),
	{name: "etcd", leased: true, queue: true, server: true, pace: quorumPace, mixes: allMixes,
		faults: onLeased, places: onQuorum, revisions: true, short: []uint64{1068}, open: openQuorum},
	database("mariadb", sqltest.StartMaria, 353),
	onlyDeep(database("postgres", sqltest.StartPostgres, 1623)), // it differs in dialect, and starts a process for each connection
}

func kernelFile(name string, second mix, short ...uint64) *engine {
	return &engine{name: name, pace: kernelPace, mixes: []mix{mutex, second}, faults: onAll,
		beyond: []kind{removeFiles}, short: short, open: openDir}
}

// onlyDeep leaves the rounds of an engine to LOCKTEST_DEPTH.
func onlyDeep(e *engine) *engine {
	e.short, e.deep = nil, e.short
	return e
}

func leaseFiles(name string, short ...uint64) *engine {
	return &engine{name: name, leased: true, queue: true, pace: filePace, mixes: allMixes, faults: onLeased,
		places: []kind{diskFull}, short: short, open: openDir}
}

func database(name string, start func(testing.TB, ...string) *sqltest.Server, short ...uint64) *engine {
	e := &engine{name: name, leased: true, queue: true, server: true, rows: true, pace: redisPace, mixes: allMixes,
		faults: onLeased, places: onSQL, beyond: []kind{serverClock}, short: short, open: openSQL(start)}
	e.youth = 40 * time.Millisecond
	return e
}

type directory struct {
	scheme string
	base   string // of all rounds
	dir    string // of this one
	socket bool   // bind: a socket file, not an abstract name
}

func openDir(t *testing.T, e *engine) site {
	d := &directory{scheme: e.name, base: t.TempDir()}
	if mayMount {
		testkit.Must(t, unix.Mount("tmpfs", d.base, "tmpfs", 0, "size=4m"))
		t.Cleanup(func() { _ = unix.Unmount(d.base, unix.MNT_DETACH) })
	}
	return d
}

func (d *directory) begin(p *plan) error {
	os.RemoveAll(d.dir) // of the last one
	d.dir, d.socket = filepath.Join(d.base, p.name()), p.socketFile()
	return os.Mkdir(d.dir, 0o700)
}

func (d *directory) skewed() bool { return false }

func (d *directory) enter(int) []string { return nil }

func (d *directory) name(name int) string { return fmt.Sprintf("n%d", name) }

func (d *directory) url(name, _ int) string {
	file := filepath.Join(d.dir, d.name(name))
	switch d.scheme {
	case "bind":
		if !d.socket {
			file = fmt.Sprintf("@golock-campaign-%d-%s-%d", os.Getpid(), filepath.Base(d.dir), name)
		}
	case "flock", "fcntl":
	default:
		file = d.dir
	}
	return d.scheme + "://" + file
}

func (d *directory) fault(f planned) (host int, ok bool) {
	switch f.Kind {
	case removeFiles:
		files, _ := filepath.Glob(filepath.Join(d.dir, "n*"))
		for _, file := range files {
			if strings.HasSuffix(file, ".lock") == (d.scheme == "local") && os.Remove(file) == nil {
				ok = true
			}
		}
	case diskFull:
		file := filepath.Join(d.base, "filler")
		if ok = mayMount && exec.Command("dd", "if=/dev/zero", "of="+file).Run() != nil; ok { // no room for one byte
			time.Sleep(f.For) // the fault
		}
		_ = os.Remove(file)
	}
	return -1, ok
}

type served struct {
	*server.Process
	redis       *redistest.Server // nil: it is another
	restart     func()
	connections func() // are ended by the server

	tcp, direct string // URLs
	links       []*link
	clock       *clock
	round       string
	serial      sync.Mutex // a server has one fault at a time
	young       time.Time  // until then nothing new is granted
}

// ready makes the ways to a server that has just been started.
func (s *served) ready(t *testing.T) site {
	up := testkit.Output(t, "", "unshare", "--time", "--boottime", "100000000", "--", "cat", "/proc/uptime")
	if strings.Index(up, ".") < len("100000000") {
		t.Fatal("this kernel gives a process its clock since boot only by fork")
	}
	for range hosts {
		s.links = append(s.links, newLink(t, s.Addr()))
	}
	s.settle()
	return s
}

// settle notes when a server that has started by now is not young any more.
func (s *served) settle() { s.young = time.Now().Add(quarantine + time.Second) }

func openRedis(t *testing.T, _ *engine) site {
	c := newClock(t)
	var r *redistest.Server
	c.under(func() { r = redistest.Start(t) })
	s := &served{Process: &r.Process, redis: r, tcp: r.URL(), direct: r.URL(), clock: c}
	s.restart = func() { c.under(r.Restart) }
	s.connections = func() {
		_, _ = r.Try("CLIENT", "KILL", "TYPE", "normal")
		_, _ = r.Try("CLIENT", "KILL", "TYPE", "pubsub")
	}
	return s.ready(t)
}

func openSQL(start func(testing.TB, ...string) *sqltest.Server) func(*testing.T, *engine) site {
	return func(t *testing.T, _ *engine) site {
		c := newClock(t)
		var q *sqltest.Server
		c.under(func() { q = start(t, "max_connections=400") })
		database := q.NewDatabase(t)
		s := &served{Process: &q.Process, tcp: q.TCPURL(database), direct: q.URL(database), clock: c}
		s.restart = func() { c.under(func() { q.Restart(t) }) }
		s.connections = func() { q.KillConnections(t, "") }
		return s.ready(t)
	}
}

func (s *served) begin(p *plan) error {
	s.round = p.name()
	time.Sleep(time.Until(s.young)) // its quarantine is no fault of the round's
	return nil
}

func (s *served) skewed() bool { return s.clock.set }

func (s *served) enter(int) []string { return nil }

func (s *served) name(name int) string { return fmt.Sprintf("%s-%d", s.round, name) }

func (s *served) url(_, host int) string {
	if host < 0 {
		return s.direct
	}
	return strings.Replace(s.tcp, s.Addr(), s.links[host].Addr(), 1)
}

func (s *served) fault(f planned) (host int, ok bool) {
	host = f.Pick % len(s.links)
	if s.links[host].fault(f) {
		return host, true
	}
	s.serial.Lock()
	defer s.serial.Unlock()
	switch f.Kind {
	case serverStop:
		s.Pause()
		time.Sleep(f.For) // the fault
		s.Resume()
	case serverKill, serverEmpty:
		s.Kill()
		time.Sleep(min(f.For, time.Second)) // the fault; a start takes its time, too
		s.restart()
		s.settle()
	case connections:
		s.connections()
	case serverMemory:
		_, _ = s.redis.Try("CONFIG", "SET", "maxmemory", "1")
		time.Sleep(f.For) // the fault
		_, _ = s.redis.Try("CONFIG", "SET", "maxmemory", "0")
	case serverFlush:
		_, _ = s.redis.Try("FLUSHALL")
	case serverClock:
		s.clock.step(f.Pick)
	}
	return -1, true
}
