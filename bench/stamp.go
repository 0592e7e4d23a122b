package main

import (
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

//go:embed testdata/stamp.c
var stampC []byte

//go:embed testdata/stamp.go
var stampGo []byte

// stamp is the command run under the locks; testdata/stamp.c says what it does.
type stamp struct{ path, built string }

// record is what one stamp left behind, times in ms on CLOCK_MONOTONIC.
type record struct {
	tag        int
	start, end float64
}

// buildStamp compiles it with gcc, or without gcc the form in Go.
func (b *bench) buildStamp() error {
	b.stamp.path = filepath.Join(b.dir, "stamp")
	if _, err := exec.LookPath("gcc"); err != nil {
		b.stamp.built = "Go (no gcc here): each hand-off contains the start of a Go program"
		return b.buildGo(b.stamp.path, stampGo)
	}
	b.stamp.built = "C, gcc -O2 -static"
	source := b.stamp.path + ".c"
	if err := os.WriteFile(source, stampC, 0o600); err != nil {
		return err
	}
	build := exec.Command("gcc", "-O2", "-static", "-o", b.stamp.path, source)
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", build, err, out)
	}
	return nil
}

// buildGo compiles a program of one file the way golock is compiled.
func (b *bench) buildGo(path string, source []byte) error {
	if err := os.WriteFile(path+".go", source, 0o600); err != nil {
		return err
	}
	return goBuild(path, path+".go")
}

// goBuild leaves a copy of what the linker has written, as an installation
// does. The two have the same bytes, but the linker's file lies in the kernel's
// cache in single pages, and its program starts up to half a millisecond later.
func goBuild(path, what string, flags ...string) error {
	linked := path + ".linked"
	defer os.Remove(linked)
	args := append([]string{"build", "-trimpath", "-ldflags", "-s -w", "-o", linked}, flags...)
	build := exec.Command("go", append(args, what)...)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", build, err, out)
	}
	from, err := os.Open(linked)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	return errors.Join(err, to.Close())
}

// section is the command of a contender: it leaves a record with this tag.
func (s stamp) section(l lock, tag int) []string {
	return []string{s.path, "run", l.records(), strconv.Itoa(tag)}
}

// lasting is a section of that many milliseconds.
func (s stamp) lasting(l lock, tag, ms int) []string {
	return append(s.section(l, tag), strconv.Itoa(ms))
}

// records lie outside the directory of the lock: nothing but locks is in there.
func (l lock) records() string { return l.dir + ".records" }

// readRecords in the order of their starts, and checks that there are as many
// as commands were run and that no two of them overlap: a benchmark of a lock
// that does not exclude measures nothing. (sem is not held to it, see overlaps.)
func readRecords(t *tool, l lock, want int) ([]record, error) {
	data, err := os.ReadFile(l.records())
	if err != nil {
		return nil, err
	}
	const size = 24
	if len(data) != want*size {
		return nil, fmt.Errorf("%d of %d commands ran", len(data)/size, want)
	}
	var records []record
	for r := range slices.Chunk(data, size) {
		field := func(i int) int64 { return int64(binary.NativeEndian.Uint64(r[8*i:])) }
		records = append(records, record{int(field(0)), float64(field(1)) / 1e6, float64(field(2)) / 1e6})
	}
	slices.SortFunc(records, func(a, b record) int {
		if a.start < b.start {
			return -1
		}
		return 1
	})
	if n := overlaps(records); n > 0 && t.name != "sem" {
		return nil, fmt.Errorf("%s does not exclude: %d commands began before the one before them had ended", t.name, n)
	}
	return records, nil
}

// overlaps counts the commands that began before the one before them had
// ended. It happens under sem, when many begin at once; the tables show it.
func overlaps(records []record) int {
	n := 0
	for i := 1; i < len(records); i++ {
		if records[i].start < records[i-1].end {
			n++
		}
	}
	return n
}

// maxRSS runs argv once and returns the largest resident size in KiB of it
// and the descendants it waited for.
func (b *bench) maxRSS(l lock, argv []string) (float64, error) {
	file := l.dir + ".rss"
	defer os.Remove(file)
	p, err := b.start(append([]string{b.stamp.path, "rss", file}, argv...))
	if err != nil {
		return 0, err
	}
	if _, err := p.succeed(); err != nil {
		return 0, err
	}
	data, err := os.ReadFile(file)
	if err != nil || len(data) != 24 {
		return 0, fmt.Errorf("no answer from stamp rss: %w", err)
	}
	if status := binary.NativeEndian.Uint64(data[16:]); status != 0 {
		return 0, fmt.Errorf("%q ended with wait status %#x", argv, status)
	}
	return float64(binary.NativeEndian.Uint64(data[8:])), nil
}

// holder is a tool that holds a lock while its command waits for the harness.
type holder struct {
	*process
	fifo int
}

// hold takes the lock and returns when the command under it is running.
func (b *bench) hold(t *tool, l lock) (*holder, error) {
	path := l.dir + ".fifo"
	if err := unix.Mkfifo(path, 0o600); err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, fmt.Errorf("making %s: %w", path, err)
	}
	p, err := b.start(t.argv(l, append(b.stamp.section(l, 0), path)...))
	if err != nil {
		return nil, err
	}
	h := &holder{process: p}
	// Opening to write succeeds when the command has opened to read.
	return h, b.until(t.name+" runs its command", 50*time.Microsecond, func() (bool, error) {
		var err error
		h.fifo, err = unix.Open(path, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if errors.Is(err, unix.ENXIO) && p.gone() {
			return false, fmt.Errorf("%q ended without running its command", p.argv)
		}
		return err == nil, nil
	})
}

// release ends the holder's command. The caller still waits for the process.
func (h *holder) release() { unix.Close(h.fifo) }

// queue starts a waiter behind a holder and returns when it is seen to be
// blocked as the nth of the queue.
func (b *bench) queue(t *tool, l lock, n int) (*process, error) {
	p, err := b.start(t.argv(l, b.stamp.section(l, n)...))
	if err != nil {
		return nil, err
	}
	what := fmt.Sprintf("waiter %d of %s is blocked", n, t.name)
	if t.polls {
		return p, b.until(what, time.Millisecond, func() (bool, error) {
			asleep, err := sleepsBetweenPolls(p.pid)
			return asleep || p.gone(), err // some sems end with a fault of their own
		})
	}
	return p, b.until(what, 50*time.Microsecond, func() (bool, error) {
		have, err := t.waiting(l)
		if err == nil && have < n && p.gone() {
			err = fmt.Errorf("%q ended instead of waiting", p.argv)
		}
		return have == n, err
	})
}
