package crash_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// This file pins nothing. A world is a lock directory and the golocks started
// on it. All of them and their commands share two pipes: records of the judges
// come in by one, golock's own lines by the other. The end of the first says
// that no process of the world is left.

// spec is one golock.
type spec struct {
	max    int // 0: --shared
	weight int
	judge  string        // the judge's mode
	hold   time.Duration // of the command; negative: until its stdin ends
	stdin  *os.File      // nil: ends with the world
	flags  []string
}

// proc is a golock that was started.
type proc struct {
	spec
	world   *world
	token   int
	process *os.Process
	done    chan struct{}
	state   *os.ProcessState // once done
	killed  bool             // the test has sent it, or its command, KILL

	// From the judge's records, guarded by world.mu.
	begins, ends int
	pid          int // of the command
	fence        int64
	at           int64 // monotonic start of the command
}

type world struct {
	t          *testing.T
	dir, store string
	always     []string // flags of every golock
	leased     bool     // the store is: what is killed keeps its slot for a while
	env        []string
	out, err   *os.File // written to by everything in the world
	stdin, end *os.File // stdin of commands; closing end ends it
	wanted     []string // beginnings of golock's lines that are no fault
	killedAt   int64    // monotonic time of the last signal
	others     []int    // children of this process from before

	mu         sync.Mutex
	procs      []*proc
	ended      []*proc // whose commands have ended by themselves, in order
	references []int64 // starts of judges without a golock
	violations []string
	lines      []string // of golocks
	silent     bool     // no process of the world is left
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), env: environment(), others: children()}
	w.store = "local://" + filepath.Join(w.dir, "locks")
	var outR, errR *os.File
	var err [3]error
	outR, w.out, err[0] = os.Pipe()
	errR, w.err, err[1] = os.Pipe()
	w.stdin, w.end, err[2] = os.Pipe()
	for _, err := range err {
		if err != nil {
			t.Fatal(err)
		}
	}
	go w.read(outR)
	go w.hear(errR)
	t.Cleanup(w.clean)
	return w
}

// read takes in the judges' records until the last writer has gone.
func (w *world) read(r *os.File) {
	defer r.Close()
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		w.record(lines.Text())
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.silent = true
}

func (w *world) record(line string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	field := strings.Fields(line)
	token, _ := strconv.Atoi(field[1])
	switch {
	case field[0] == "v":
		w.violations = append(w.violations, line)
	case token < 0 && field[0] == "b":
		at, _ := strconv.ParseInt(field[4], 10, 64)
		w.references = append(w.references, at)
	case token < 0:
	case field[0] == "b":
		p := w.procs[token]
		p.begins++
		p.pid, _ = strconv.Atoi(field[2])
		p.fence, _ = strconv.ParseInt(field[3], 10, 64)
		p.at, _ = strconv.ParseInt(field[4], 10, 64)
	case field[0] == "e":
		p := w.procs[token]
		p.ends++
		w.ended = append(w.ended, p)
	}
}

// hear takes in what golocks say.
func (w *world) hear(r *os.File) {
	defer r.Close()
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		w.mu.Lock()
		if line := withoutTime(lines.Text()); !strings.HasPrefix(line, "golock: waiting for ") { // what a person reads while it waits
			w.lines = append(w.lines, line)
		}
		w.mu.Unlock()
	}
}

// withoutTime is a line of -v without the time of day that it begins with.
func withoutTime(line string) string {
	const form = "15:04:05.000"
	rest, ok := strings.CutPrefix(line, "golock: ")
	if ok && len(rest) > len(form) {
		if _, err := time.Parse(form, rest[:len(form)]); err == nil {
			return "golock: " + strings.TrimPrefix(rest[len(form):], " ")
		}
	}
	return line
}

// said counts a line that golock prints with -v.
func (w *world) said(what string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, line := range w.lines {
		if strings.HasPrefix(line, "golock: "+what) {
			n++
		}
	}
	return n
}

// argv is the golock of a spec.
func (s *spec) argv(w *world, token int) []string {
	argv := []string{golock, "run", "--store", w.store, "--name", "n"}
	if s.max == 0 {
		argv = append(argv, "--shared")
	} else {
		argv = append(argv, "--max", strconv.Itoa(s.max))
	}
	if s.weight == 0 {
		s.weight = 1
	}
	argv = slices.Concat(argv, []string{"--weight", strconv.Itoa(s.weight)}, w.always, s.flags)
	mode := s.judge
	if mode == "" {
		mode = "u"
	}
	hold := s.hold.Microseconds()
	if s.hold < 0 {
		hold = -1
	}
	argv = append(append(argv, "--"), judge...)
	return append(argv, strconv.Itoa(token), strconv.Itoa(s.max), strconv.Itoa(s.weight), mode, strconv.FormatInt(hold, 10))
}

// start starts a golock, in a session of its own: without a terminal.
func (w *world) start(s spec) *proc {
	w.t.Helper()
	return w.startAfter(s, nil)
}

// startAfter starts one that begins when the pipe ends, if there is one.
func (w *world) startAfter(s spec, pipe *os.File) *proc {
	w.t.Helper()
	p := w.newProc(s)
	if err := p.begin(pipe, false); err != nil {
		w.t.Fatal(err)
	}
	go p.reap()
	return p
}

func (w *world) newProc(s spec) *proc {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := &proc{spec: s, world: w, token: len(w.procs), done: make(chan struct{})}
	w.procs = append(w.procs, p)
	return p
}

// begin starts the process of p; traced, as one that the calling thread traces.
func (p *proc) begin(pipe *os.File, traced bool) (err error) {
	w := p.world
	stdin := p.stdin
	if stdin == nil {
		stdin = w.stdin
	}
	files := []*os.File{stdin, w.out, w.err}
	argv := p.argv(w, p.token)
	if pipe != nil {
		argv = slices.Concat(judge, []string{"@after"}, argv)
		files = append(files, pipe)
	}
	p.process, err = os.StartProcess(argv[0], argv, &os.ProcAttr{
		Dir: w.dir, Env: w.env, Files: files, Sys: &syscall.SysProcAttr{Setsid: true, Ptrace: traced},
	})
	return err
}

func (p *proc) reap() {
	p.state, _ = p.process.Wait()
	close(p.done)
}

// lasting makes s hold until the returned function is called.
func (w *world) lasting(s spec) (spec, func()) {
	w.t.Helper()
	r, end, err := os.Pipe()
	if err != nil {
		w.t.Fatal(err)
	}
	s.hold, s.stdin = -1, r
	release := func() { end.Close() }
	w.t.Cleanup(func() {
		release()
		r.Close()
	})
	return s, release
}

// queued starts a golock and returns when it waits. Those of w that are
// started elsewhere at the same time must not say -v.
func (w *world) queued(s spec) *proc {
	w.t.Helper()
	s.flags = append(slices.Clip(s.flags), "-v")
	before := w.said("waiting")
	p := w.start(s)
	await(w.t, "a golock that queues", func() bool { return w.said("waiting") > before })
	return p
}

func (w *world) begun(p *proc) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return p.begins > 0
}

func (w *world) awaitBegin(p *proc) {
	w.t.Helper()
	await(w.t, fmt.Sprintf("the command of golock %d", p.token), func() bool { return w.begun(p) })
}

func (p *proc) isDone() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// code is the exit code of a golock that is done, -1 after a signal.
func (p *proc) code() int {
	<-p.done
	return p.state.ExitCode()
}

// kill kills a golock, and reports whether it was alive.
func (p *proc) kill() bool {
	p.world.killedAt = monotonic()
	if p.process.Signal(syscall.SIGKILL) != nil {
		return false
	}
	p.killed = true
	return true
}

// signalCommand signals the command of p, if it is still the one that wrote
// the record: by a pidfd, so that no later process of its number is hit.
func (w *world) signalCommand(p *proc, sig syscall.Signal) bool {
	w.mu.Lock()
	pid := p.pid
	w.mu.Unlock()
	if pid == 0 {
		return false
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	cmdline, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	own := strings.Join(append(slices.Clone(judge), strconv.Itoa(p.token)), "\x00") + "\x00"
	cwd, _ := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
	if !bytes.HasPrefix(cmdline, []byte(own)) || cwd != w.dir {
		return false
	}
	w.killedAt = monotonic()
	return unix.PidfdSendSignal(fd, sig, nil, 0) == nil
}

func (w *world) killCommand(p *proc) bool {
	if !w.signalCommand(p, syscall.SIGKILL) {
		return false
	}
	p.killed = true
	return true
}

// entry is one of golock ls --json, as far as it matters here.
type entry struct {
	State    string
	Position int
	PID      int
}

func (w *world) ls() []entry {
	w.t.Helper()
	ls := exec.Command(golock, "ls", "--json", "--store", w.store)
	ls.Env = w.env
	var says strings.Builder
	ls.Stderr = &says
	out, err := ls.Output()
	var list []entry
	if err == nil {
		err = json.Unmarshal(out, &list)
	}
	if err != nil || list == nil {
		w.t.Fatalf("golock ls --json: %v: %s%s", err, out, says.String())
	}
	return list
}

// drain returns when every golock and command of the world has ended, by
// itself or by the test, with all its descriptors closed.
func (w *world) drain() {
	w.t.Helper()
	running := func() []int {
		var left []int
		for _, p := range w.procs {
			if !p.isDone() {
				left = append(left, p.token)
			}
		}
		return left
	}
	if !within(limit, func() bool { return len(running()) == 0 }) {
		w.t.Fatalf("golocks %v have not ended after %v; ls: %+v\n%s", running(), limit, w.ls(), w.report())
	}
	w.out.Close()
	await(w.t, "the end of all commands", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.silent
	})
	// Commands whose golock was killed are children of this process now.
	for !w.leased {
		left := slices.DeleteFunc(children(), func(pid int) bool { return slices.Contains(w.others, pid) })
		if len(left) == 0 {
			break
		}
		for _, pid := range left {
			for {
				if _, err := syscall.Wait4(pid, nil, 0, nil); err != syscall.EINTR {
					break
				}
			}
		}
	}
}

// children are those of this process, zombies included.
func children() []int {
	lists, _ := filepath.Glob("/proc/self/task/*/children")
	var all []int
	for _, list := range lists {
		text, _ := os.ReadFile(list)
		for _, word := range strings.Fields(string(text)) {
			pid, _ := strconv.Atoi(word)
			all = append(all, pid)
		}
	}
	return all
}

// check fails the test for what the judges and golocks had to say, and for
// golocks that nobody killed and that came to something else than they should.
func (w *world) check() {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, v := range w.violations {
		w.t.Errorf("violation: golock %s", v[2:])
	}
	for _, line := range w.lines {
		ok := slices.ContainsFunc(w.wanted, func(start string) bool { return strings.HasPrefix(line, "golock: "+start) })
		if !ok {
			w.t.Errorf("unexpected line: %s", line)
		}
	}
	lost := 0
	for _, p := range w.procs {
		code, refused := p.state.ExitCode(), slices.Contains(p.flags, "-n") || slices.Contains(p.flags, "-w")
		switch {
		case p.begins > 1:
			w.t.Errorf("golock %d ran its command %d times", p.token, p.begins)
		case p.killed:
		case code == 75 && refused && p.begins == 0:
		case code != 0 || p.begins != 1 || p.ends != 1:
			lost++
			w.t.Errorf("golock %d %v: %v, command started %d times and ended %d times", p.token, p.flags, p.state, p.begins, p.ends)
		}
		if lost > 10 {
			break
		}
	}
}

// report is for failures.
func (w *world) report() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return fmt.Sprintf("violations: %q\nlines: %q", w.violations, w.lines)
}

// nothingLeft fails the test if the next golock finds anything in its way.
func (w *world) nothingLeft() {
	w.t.Helper()
	if w.leased {
		await(w.t, "an end of the leases", func() bool { return len(w.ls()) == 0 })
	}
	if list := w.ls(); len(list) != 0 {
		w.t.Errorf("ls --json after the end: %+v", list)
	}
	fresh := newWorld(w.t)
	fresh.store, fresh.leased, fresh.always, fresh.wanted = w.store, w.leased, w.always, w.wanted
	took := func(w *world) time.Duration {
		from := monotonic()
		p := w.start(spec{max: 1, judge: "n", flags: []string{"-n"}})
		if p.code() != 0 {
			w.t.Errorf("run -n after the end: %v", p.state)
		}
		w.drain()
		w.check()
		return time.Duration(p.at - from)
	}
	first := took(fresh)
	if w.leased {
		return
	}
	// Whatever golock would have to wait for takes it a second.
	if other := took(newWorld(w.t)); first > 500*time.Millisecond && first > 5*other {
		w.t.Errorf("run -n after the end took %v, on an empty store %v", first, other)
	}
}

// clean ends what a failed test has left.
func (w *world) clean() {
	w.end.Close()
	for _, p := range w.procs {
		if p.process != nil && !p.isDone() {
			_ = p.process.Signal(syscall.SIGKILL)
			<-p.done
		}
	}
	for _, p := range w.procs {
		w.mu.Lock()
		running := p.begins > p.ends
		w.mu.Unlock()
		if running {
			w.signalCommand(p, syscall.SIGKILL)
		}
	}
	w.out.Close()
	w.err.Close()
	within(limit, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.silent
	})
	w.stdin.Close()
}
