package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// bench is one run of the harness.
type bench struct {
	plan
	dir       string // temporary, removed by close
	tools     map[string]*tool
	stamp     stamp
	about     section // the machine and the tools
	*report           // of the experiment under way
	pages     []*report
	constants constants // measured on the way, for the estimate

	null, log int      // descriptors every command gets as stdin, and as stdout and stderr
	env       []string // the same for all

	closing   sync.Once
	mu        sync.Mutex // guards what follows, and starting and reaping against stopping
	stopped   bool
	awaited   *process // by wait, since
	since     time.Time
	fresh     int // for unused names
	servers   []*process
	logReader string
}

// newBench checks the peers, makes the temporary directory and builds what is
// missing in it.
func newBench(p plan, golock string, chosen func(prefix string) bool) (*bench, error) {
	tools, err := findPeers()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "golock-bench-")
	if err != nil {
		return nil, err
	}
	b := &bench{plan: p, dir: dir, tools: tools, null: -1, log: -1}
	for _, h := range pageHeads {
		b.pages = append(b.pages, &report{pageHead: h})
	}
	err = b.prepare(golock)
	if err == nil && (chosen("redis-") || chosen("sql-") || chosen("etcd-") || chosen("scale-")) {
		err = b.addRedis()
	}
	if err == nil && chosen("etcd-") {
		err = b.addEtcd()
	}
	if err == nil && chosen("scale-") {
		err = b.addTickets()
	}
	for _, kind := range sqlKinds {
		if err == nil && (chosen(kind.scheme()+"-") || chosen("scale-")) {
			err = kind.find(b)
		}
	}
	if err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

func (b *bench) prepare(golock string) (err error) {
	// Orphans of the tools become children of the harness: so it can end them
	// all without ever guessing at a process number.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("becoming the reaper of orphans: %w", err)
	}
	go b.watch()
	b.env = []string{
		"PATH=/usr/bin:/bin", "HOME=" + b.dir, "TMPDIR=" + b.dir, "LC_ALL=C",
		"PARALLEL_HOME=" + filepath.Join(b.dir, "parallel"),
	}
	if b.null, err = unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0); err != nil {
		return err
	}
	b.logReader = filepath.Join(b.dir, "output")
	if b.log, err = unix.Open(b.logReader, unix.O_WRONLY|unix.O_CREAT|unix.O_APPEND|unix.O_CLOEXEC, 0o600); err != nil {
		return err
	}
	if err := b.buildStamp(); err != nil {
		return err
	}
	if err := b.addFloor(); err != nil {
		return err
	}
	return b.addGolock(golock)
}

// close ends every process that the harness started, and those that these
// started, and removes the temporary directory. It may be called from any
// goroutine and more than once.
func (b *bench) close() {
	b.mu.Lock()
	b.stopped = true
	b.mu.Unlock()
	b.closing.Do(func() {
		b.endServers()
		b.endStrays()
		os.RemoveAll(b.dir)
	})
}

// place is a fresh directory for one lock, and the name of that lock.
func (b *bench) place(tool string) (lock, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopped {
		return lock{}, errStopped
	}
	b.fresh++
	name := fmt.Sprintf("%s-%d", tool, b.fresh)
	dir := filepath.Join(b.dir, name)
	return lock{dir: dir, name: name}, os.Mkdir(dir, 0o700)
}

// errStopped ends a measurement that was interrupted.
var errStopped = errors.New("stopped")

// lastLine is the last of logTail.
func (b *bench) lastLine() string {
	lines := strings.Split(b.logTail(), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}

// logTail is the last of what the tools printed, to explain a failure.
func (b *bench) logTail() string {
	data, err := os.ReadFile(b.logReader)
	if err != nil || len(data) == 0 {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	// Servers that have just been ended have the last word otherwise.
	if own := slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return !strings.HasPrefix(line, "golock: ") }); len(own) > 0 {
		lines = own
	}
	return "\nthe tools printed last:\n  " + strings.Join(lines[max(0, len(lines)-5):], "\n  ")
}
