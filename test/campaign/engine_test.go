//go:build integration

package campaign_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks/redis/redistest"
	"golock/locks/sql/sqltest"
)

// This file pins nothing. It lists the stores: what they promise, what is asked
// of them, which faults make sense, and what is not promised and made all the
// same.

type engine struct {
	name   string
	leased bool
	queue  bool // order, fences, slots for all
	mutual bool // removed files are noticed
	rows   bool // a database
	clocks bool // drivers have clocks of their own
	ttls   []time.Duration
	pace   pace
	youth  time.Duration // in which a newcomer is killed
	mixes  []mix
	faults []kind   // of processes
	places []kind   // of what else there is
	beyond []kind   // not promised to be harmless
	short  []uint64 // the rounds that are played where nobody says for how long
	open   func(t *testing.T, e *engine) site
}

// site is where the locks of rounds are.
type site interface {
	// begin makes ready for a round: paths and links for its names and drivers.
	begin(round string, p *plan) error
	// url is that of a name for a driver; for -1, without anything in between.
	url(name, driver int) string
	// name is what --name says.
	name(name int) string
	// fault makes one and returns when it is over. It tells from when, whom it
	// hits (a driver, -1: all), and whether it could be made.
	fault(f planned) (driver int, ok bool)
	end()
}

// terms are those of a round.
func (e *engine) terms(p *plan) terms {
	t := terms{Leased: e.leased, Ordered: e.queue, Fenced: e.queue, Slots: e.queue, Mutual: e.mutual, Rows: e.rows}
	t.Late = e.leased && !e.server()
	t.Heirs = e.name == "bind" && !usesSocketFile(p)
	if e.leased {
		t.TTL = p.TTL
	}
	if e.server() {
		t.Quarantine = quarantine
	}
	return t
}

// skewed is a site whose server has another wall clock than this machine.
type skewed interface{ skewed() bool }

func (s *served) skewed() bool { return s.clock.set }

func (e *engine) server() bool { return e.leased && e.clocks }

const quarantine = 3 * time.Second // the default of the stores

var (
	kernelPace = pace{window: 1500 * time.Millisecond, names: 3, each: 30, lasts: 25 * time.Millisecond, long: 300 * time.Millisecond, faults: 30, places: 2}
	filePace   = pace{window: 5 * time.Second, names: 3, each: 24, lasts: 250 * time.Millisecond, long: 3 * time.Second, faults: 20, places: 1}
	serverPace = pace{window: 6 * time.Second, names: 4, each: 24, lasts: 250 * time.Millisecond, long: 3 * time.Second, faults: 24, places: 3}

	onAll    = []kind{killHolder, killHolder, killWaiter, killEnding, killEnding, killCommand, killPair, stopHolder, stopWaiter, stopCommand, term, interrupt, suspend}
	onLeased = append([]kind{killGuard, killBoth, stopGuard, stopBoth, stopTree, stopThenKill, killStopped}, onAll...)
	onServer = []kind{serverStop, serverStop, connections, netCut, netFreeze, netFreeze, netDeaf, netRefuse, netDelay}

	allMixes   = []mix{mutex, three, readers, priority, trees, changing, ticks, newest, sixteen}
	short      = []time.Duration{0}
	leaseTimes = []time.Duration{3 * time.Second, 3 * time.Second, 6 * time.Second}
)

var engines = []*engine{
	{name: "local", queue: true, mutual: true, ttls: short, pace: kernelPace, youth: 6 * time.Millisecond, mixes: allMixes, faults: onAll, places: []kind{diskFull, removeFiles}, short: []uint64{2187, 5998, 5733, 5047}, open: openDir("local")},
	{name: "flock", ttls: short, pace: kernelPace, youth: 6 * time.Millisecond, mixes: []mix{mutex, readers}, faults: onAll, beyond: []kind{removeFiles}, short: []uint64{1000, 556, 1590}, open: openDir("flock")},
	{name: "fcntl", ttls: short, pace: kernelPace, youth: 6 * time.Millisecond, mixes: []mix{mutex, readers}, faults: onAll, beyond: []kind{removeFiles}, short: []uint64{1000, 219, 556}, open: openDir("fcntl")},
	{name: "bind", ttls: short, pace: kernelPace, youth: 6 * time.Millisecond, mixes: []mix{mutex, plain3}, faults: onAll, beyond: []kind{removeFiles}, short: []uint64{3709, 524, 2106}, open: openDir("bind")},
	{name: "mkdir", leased: true, queue: true, mutual: true, ttls: leaseTimes, pace: filePace, youth: 30 * time.Millisecond, mixes: allMixes, faults: onLeased, places: []kind{diskFull}, short: []uint64{2816, 2651}, open: openDir("mkdir")},
	{name: "symlink", leased: true, queue: true, mutual: true, ttls: leaseTimes, pace: filePace, youth: 30 * time.Millisecond, mixes: allMixes, faults: onLeased, places: []kind{diskFull}, short: []uint64{1569, 1025}, open: openDir("symlink")},
	{name: "excl", leased: true, queue: true, mutual: true, ttls: leaseTimes, pace: filePace, youth: 30 * time.Millisecond, mixes: allMixes, faults: onLeased, places: []kind{diskFull}, short: []uint64{241, 1840}, open: openDir("excl")},
	{name: "redis", leased: true, queue: true, mutual: true, clocks: true, ttls: leaseTimes, pace: serverPace, youth: 30 * time.Millisecond, mixes: allMixes, faults: onLeased,
		places: append([]kind{serverEmpty, serverEmpty, serverMemory}, onServer...), beyond: []kind{serverFlush, serverClock}, short: []uint64{5661, 3763}, open: openRedis},
	{name: "mariadb", leased: true, queue: true, mutual: true, rows: true, clocks: true, ttls: leaseTimes, pace: serverPace, youth: 40 * time.Millisecond, mixes: allMixes, faults: onLeased,
		places: append([]kind{serverKill, serverKill}, onServer...), beyond: []kind{serverClock}, short: []uint64{353, 3155}, open: openSQL(sqltest.StartMaria)},
	{name: "postgres", leased: true, queue: true, mutual: true, rows: true, clocks: true, ttls: leaseTimes, pace: serverPace, youth: 40 * time.Millisecond, mixes: allMixes, faults: onLeased,
		places: append([]kind{serverKill, serverKill}, onServer...), beyond: []kind{serverClock}, short: []uint64{1623, 924}, open: openSQL(sqltest.StartPostgres)},
}

// directory is the site of stores on this machine.
type directory struct {
	t      *testing.T
	scheme string
	base   string // of all rounds
	dir    string // of this one
	round  string
	socket bool // bind: a socket file, not an abstract name
}

func openDir(scheme string) func(*testing.T, *engine) site {
	return func(t *testing.T, _ *engine) site {
		d := &directory{t: t, scheme: scheme, base: t.TempDir()}
		if mayMount {
			if err := unix.Mount("tmpfs", d.base, "tmpfs", 0, "size=4m"); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = unix.Unmount(d.base, unix.MNT_DETACH) })
		}
		return d
	}
}

func (d *directory) begin(round string, p *plan) error {
	d.round, d.dir, d.socket = round, filepath.Join(d.base, round), usesSocketFile(p)
	return os.Mkdir(d.dir, 0o700)
}

// usesSocketFile decides between a socket file and an abstract name.
func usesSocketFile(p *plan) bool { return p.Seed%2 == 0 }

func (d *directory) end() { os.RemoveAll(d.dir) }

func (d *directory) name(name int) string { return fmt.Sprintf("n%d", name) }

func (d *directory) url(name, _ int) string {
	switch {
	case d.scheme == "bind" && !d.socket:
		return fmt.Sprintf("bind://@golock-campaign-%d-%s-%d", os.Getpid(), d.round, name)
	case d.scheme == "flock" || d.scheme == "fcntl" || d.scheme == "bind":
		return d.scheme + "://" + filepath.Join(d.dir, d.name(name))
	}
	return d.scheme + "://" + d.dir
}

func (d *directory) fault(f planned) (driver int, ok bool) {
	switch f.Kind {
	case removeFiles:
		files, _ := filepath.Glob(filepath.Join(d.dir, "n*"))
		for _, file := range files {
			if strings.HasSuffix(file, ".lock") == (d.scheme == "local") && os.Remove(file) == nil {
				ok = true
			}
		}
		return -1, ok
	case diskFull:
		if !mayMount {
			return -1, false
		}
		file := filepath.Join(d.base, "filler")
		err := fill(file)
		time.Sleep(f.For) // the fault
		_ = os.Remove(file)
		return -1, errors.Is(err, unix.ENOSPC)
	}
	return -1, false
}

// fill writes until there is no room for one byte.
func fill(file string) error {
	w, err := os.Create(file)
	if err != nil {
		return err
	}
	defer w.Close()
	for page := make([]byte, 4096); err == nil; {
		_, err = w.Write(page)
	}
	return err
}

// served is the site of stores at a server.
type served struct {
	t      *testing.T
	round  string
	links  []*link
	serial sync.Mutex // a server has one fault at a time

	addr        string
	link        func(addr string) string // URL through a link
	direct      string
	stop, cont  func()
	kill        func()
	restart     func()
	connections func()
	memory      func(full bool)
	flush       func()
	clock       *clock
	young       time.Time // until then nothing new is granted
}

// settled is when a server that has started by now is not young any more.
func settled() time.Time { return time.Now().Add(quarantine + time.Second) }

func openRedis(t *testing.T, _ *engine) site {
	c := newClock(t)
	var s *redistest.Server
	c.under(func() { s = redistest.Start(t) })
	config := "0"
	return &served{
		t: t, addr: s.Addr(), direct: s.URL(),
		link: func(addr string) string { return "redis://" + addr },
		stop: s.Stop, cont: s.Continue, kill: s.Kill, restart: func() { c.under(s.Restart) }, clock: c, young: settled(),
		connections: func() {
			_, _ = s.Try("CLIENT", "KILL", "TYPE", "normal")
			_, _ = s.Try("CLIENT", "KILL", "TYPE", "pubsub")
		},
		memory: func(full bool) {
			if config = "0"; full {
				config = "1"
			}
			_, _ = s.Try("CONFIG", "SET", "maxmemory", config)
		},
		flush: func() { _, _ = s.Try("FLUSHALL") },
	}
}

func openSQL(start func(testing.TB, ...string) *sqltest.Server) func(*testing.T, *engine) site {
	return func(t *testing.T, _ *engine) site {
		c := newClock(t)
		var s *sqltest.Server
		c.under(func() { s = start(t, "max_connections=400") })
		database := s.NewDatabase(t)
		return &served{
			t: t, addr: s.Addr(), direct: s.URL(database),
			link: func(addr string) string { return strings.Replace(s.TCPURL(database), s.Addr(), addr, 1) },
			stop: s.Pause, cont: s.Resume, kill: s.Kill, restart: func() { c.under(func() { s.Restart(t) }) }, clock: c, young: settled(),
			connections: func() { s.KillConnections(t, "") },
		}
	}
}

func (s *served) begin(round string, p *plan) error {
	s.round = round
	time.Sleep(time.Until(s.young)) // its quarantine is no fault of the round's
	for range p.Drivers {
		k, err := newLink(s.addr)
		if err != nil {
			return err
		}
		s.links = append(s.links, k)
	}
	return nil
}

func (s *served) end() {
	for _, k := range s.links {
		k.close()
	}
	s.links = nil
}

func (s *served) name(name int) string { return fmt.Sprintf("%s-%d", s.round, name) }

func (s *served) url(_, driver int) string {
	if driver < 0 {
		return s.direct
	}
	return s.link(s.links[driver].addr())
}

func (s *served) fault(f planned) (driver int, ok bool) {
	last := func() { time.Sleep(f.For) } // the fault
	away := min(f.For, time.Second)      // a server that starts takes its time, too
	driver = f.Pick % len(s.links)
	k := s.links[driver]
	switch f.Kind {
	case netCut:
		k.cut()
		return driver, true
	case netFreeze:
		k.set(false, false, false, 0)
		last()
		k.heal()
		return driver, true
	case netDeaf:
		k.set(true, false, false, 0)
		last()
		k.heal()
		return driver, true
	case netRefuse:
		k.set(true, true, true, 0)
		k.cut()
		last()
		k.heal()
		return driver, true
	case netDelay:
		k.set(true, true, false, time.Duration(1+f.Pick%60)*time.Millisecond)
		last()
		k.heal()
		return driver, true
	}
	s.serial.Lock()
	defer s.serial.Unlock()
	switch f.Kind {
	case serverStop:
		s.stop()
		last()
		s.cont()
	case serverKill, serverEmpty:
		s.kill()
		time.Sleep(away)
		s.restart()
		s.young = settled()
	case connections:
		s.connections()
	case serverMemory:
		s.memory(true)
		last()
		s.memory(false)
	case serverFlush:
		s.flush()
	case serverClock:
		s.clock.step(f.Pick)
	default:
		return -1, false
	}
	return -1, true
}
