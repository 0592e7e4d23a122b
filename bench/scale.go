package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// scalePlan says how far the lines are made to grow.
type scalePlan struct {
	crowds   []int // waiters on one name, each a process
	rounds   []int // of each
	ttl      int   // of the waiters, in seconds; they are watched for a third of it
	settle   int   // seconds before they are
	names    int   // held at once
	rows     int   // the same on an SQL server
	more     int   // rounds of start-up beside them
	renewals int   // of those names
	tickets  int   // waiters on one name in a few processes
	seconds  int   // of taking and giving back
	lines    int   // loops that do so at a time
}

// place of a store under load: where it is and what it does.
type scaleStore struct {
	name    string
	scheme  string // of measures and targets
	waiting *tool
	holding *tool
	url     func(lock) string
	crowds  int // no more waiters than these are sensible; 0: as the plan says
	names   int // held at once
	server  int // the process; 0: none
	work    func() (work, error)
	stop    func()

	// size is what all that is stored takes up, in KiB.
	size func(l lock) (float64, error)
}

// scaleStores starts the servers and gives the stores that are compared under
// load. stop each when it is done with.
func (b *bench) scaleStores() (stores []*scaleStore, err error) {
	ttl := fmt.Sprintf("%ds", b.plan.scale.ttl)
	defer func() {
		if err != nil {
			stopStores(stores)
		}
	}()
	golock := func(name, scheme string, url func(lock) string, line func(lock) (int, error)) *scaleStore {
		s := &scaleStore{name: name, scheme: scheme, url: url, names: b.plan.scale.names, stop: func() {}}
		s.waiting, s.holding = golockTool(name+" -q", b.tools["golock"].path, url, "-q", "--ttl", ttl), golockTool(name, b.tools["golock"].path, url, "--ttl", "1h")
		if line != nil {
			s.waiting.waiting, s.holding.waiting = line, line
		}
		stores = append(stores, s)
		return s
	}
	local := golock("golock run", "local", localStore, nil)
	local.waiting, local.holding = b.tools["golock -q"], b.tools["golock -q"]
	local.size = sizeOfDir

	files := golock("golock run, mkdir", "mkdir", func(l lock) string { return "mkdir://" + l.dir }, inLine)
	files.size, files.crowds = sizeOfDir, 100

	srv, err := b.startServer("--maxclients", "18000")
	if err != nil {
		return stores, err
	}
	redis := golock("golock run, redis", "redis", srv.url, srv.listening)
	redis.server, redis.stop, redis.work = srv.pid, srv.stop, srv.work
	redis.size = func(lock) (float64, error) { return srv.memory() }

	for _, kind := range sqlKinds {
		d, err := b.startDatabase(kind, false)
		if err != nil {
			return stores, err
		}
		s := golock("golock run, "+kind.scheme(), kind.scheme(), d.url, func(lock) (int, error) { return d.queued() })
		s.names = b.plan.scale.rows
		s.server, s.stop, s.work = d.pid, d.stop, func() (work, error) { return kind.work(d) }
		s.size = func(lock) (float64, error) { return kind.size(d) }
		if err := d.used(); err != nil {
			return stores, err
		}
		t := kind.session(d)
		// Everyone has a connection, of which there are about a hundred.
		stores = append(stores, &scaleStore{name: t.name, scheme: kind.scheme(), waiting: t, holding: t, crowds: 80, server: d.pid, work: s.work, stop: func() {}})
	}
	return stores, nil
}

func stopStores(stores []*scaleStore) {
	for _, s := range stores {
		s.stop()
	}
}

// work implements scaleStore. A transaction is a script.
func (s *server) work() (w work, err error) {
	u, err := s.usage()
	if err != nil {
		return w, err
	}
	text, err := s.client.Info(context.Background(), "stats").Result()
	if err != nil {
		return w, err
	}
	w.statements, w.transactions, w.connections = u.asked(), u.scripts(), int(infoNumber(text, "total_connections_received"))
	w.cpu, err = cpuOf(s.pid)
	return w, err
}

// memory is what the server has allocated, in KiB.
func (s *server) memory() (float64, error) {
	text, err := s.client.Info(context.Background(), "memory").Result()
	return infoNumber(text, "used_memory") / 1024, err
}

// infoNumber reads a line of INFO.
func infoNumber(text, key string) float64 {
	for line := range strings.Lines(text) {
		if value, is := strings.CutPrefix(strings.TrimSpace(line), key+":"); is {
			n, _ := strconv.ParseFloat(value, 64)
			return n
		}
	}
	return 0
}

// sizeOfDir is what the files of a local store take up, in KiB.
func sizeOfDir(l lock) (float64, error) {
	sum := 0.0
	err := filepath.WalkDir(l.dir, func(path string, _ fs.DirEntry, err error) error {
		var st unix.Stat_t
		if err == nil {
			err = unix.Lstat(path, &st)
		}
		sum += float64(st.Blocks) / 2
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it has just gone
		}
		return err
	})
	return sum, err
}

// upTo gives the sizes of crowds that a store is measured with: the least, and
// its own limit if it has one.
func (s *scaleStore) upTo(crowds []int) []int {
	if s.crowds == 0 {
		return crowds
	}
	return []int{crowds[0], s.crowds}
}
