package main

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// lock is one that nobody else uses. Its directory has the tool's files only.
type lock struct{ dir, name string }

func (b *bench) newLock() lock {
	b.places++
	name := fmt.Sprintf("bench%d", b.places)
	l := lock{dir: filepath.Join(b.dir, name), name: name}
	must(os.Mkdir(l.dir, 0o700))
	return l
}

func (l lock) records() string { return l.dir + ".records" }

// section is a command that leaves a record with a tag; what it waits for is
// stamp's third argument.
func (b *bench) section(l lock, tag int, waitFor ...string) []string {
	return append([]string{b.stamp, l.records(), strconv.Itoa(tag)}, waitFor...)
}

// record is what one stamp has left behind, times in ms.
type record struct {
	tag        int
	start, end float64
}

const recordSize = 24

// readRecords reads them in the order of their starts. As many must be there as
// commands ran, and no two may overlap: a lock that does not exclude measures
// nothing.
func readRecords(t *tool, l lock, want int) (records []record) {
	data := get(os.ReadFile(l.records()))
	if len(data) != want*recordSize {
		must(fmt.Errorf("%s: %d of %d commands ran", t.name, len(data)/recordSize, want))
	}
	for r := range slices.Chunk(data, recordSize) {
		field := func(i int) int64 { return int64(binary.NativeEndian.Uint64(r[8*i:])) }
		records = append(records, record{int(field(0)), float64(field(1)) / 1e6, float64(field(2)) / 1e6})
	}
	slices.SortFunc(records, func(a, b record) int { return cmp.Compare(a.start, b.start) })
	for i := 1; i < len(records); i++ {
		if records[i].start < records[i-1].end {
			must(fmt.Errorf("%s does not exclude: number %d began too early", t.name, i))
		}
	}
	return records
}

// gapsOf are the times from the end of a command to the start of the next.
func gapsOf(records []record) (gaps []float64, inversions int) {
	for i := 1; i < len(records); i++ {
		gaps = append(gaps, records[i].start-records[i-1].end)
		if records[i].tag < records[i-1].tag {
			inversions++
		}
	}
	return gaps, inversions
}

// queue is a process that holds a lock until the harness lets it go, and those
// who wait behind it.
type queue struct {
	*process
	fifo    int
	tool    *tool
	lock    lock
	waiters []*process
}

// newQueue returns when the command of the holder runs.
func (b *bench) newQueue(t *tool) *queue {
	q := &queue{tool: t, lock: b.newLock()}
	path := q.lock.dir + ".fifo"
	must(unix.Mkfifo(path, 0o600))
	q.process = b.start(t.run(q.lock, b.section(q.lock, 0, path)...))[0]
	// It can be opened for writing when the command has opened it for reading.
	b.until(t.name+" runs its command", 50*time.Microsecond, func() (yes bool, err error) {
		q.fifo, err = unix.Open(path, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil && q.gone() {
			return false, fmt.Errorf("%s: %w: %s", t.name, errEnded, b.lastLine())
		}
		return err == nil, nil
	})
	return q
}

// add starts n waiters and returns when they are seen to wait.
func (q *queue) add(b *bench, count int) {
	var commands [][]string
	for n := range count {
		commands = append(commands, q.tool.run(q.lock, b.section(q.lock, len(q.waiters)+n+1)...))
	}
	q.waiters = append(q.waiters, b.start(commands...)...)
	what := fmt.Sprintf("%d of %s wait", len(q.waiters), q.tool.name)
	b.until(what, q.tool.lookEvery, func() (bool, error) {
		n, err := q.tool.waiting(q.lock)
		if n < len(q.waiters) && slices.ContainsFunc(q.waiters, (*process).gone) {
			return false, fmt.Errorf("%s: a waiter: %w: %s", q.tool.name, errEnded, b.lastLine())
		}
		return n == len(q.waiters), err
	})
}

// finish lets the holder go, and gives the records and the CPU time of all
// waiters when all have had their turn.
func (q *queue) finish() (records []record, cpu float64) {
	unix.Close(q.fifo)
	q.succeed()
	for _, p := range q.waiters {
		cpu += p.succeed().cpu
	}
	return readRecords(q.tool, q.lock, len(q.waiters)+1), cpu
}

// cpu is what the waiters and the server have used so far, in ms.
func (q *queue) cpu() (clients, server float64) {
	for _, p := range q.waiters {
		clients += get(cpuClock(p.pid)) + cpuOfReaped(p.pid)
	}
	return clients, q.tool.serverCPU()
}
