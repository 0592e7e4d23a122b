// Package matrix_test holds the program, seen from outside, against tables of
// what a user can rely on: exit codes, signals, transparency, terminals, PID 1,
// process trees, crashes, exec and nesting.
//
// This file pins nothing. It builds golock once, starts it in a world of its
// own (one store, one mark in the environment by which every descendant is
// found again), and plays the part of the command: the test binary runs itself
// under a first argument that begins with "@".
//
// Events are ordered by handshake: a line on a pipe, a file that appears, a
// state in /proc. The only time that counts is the upper limit of await.
package matrix_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks/sql/sqltest"
)

// limit is how long a test waits for something that has to happen. It is no
// promise of golock's: only a hang or a lost event ever uses it up.
const limit = 30 * time.Second

var (
	golock string // the program under test
	self   string // this test binary, which is also the command
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && strings.HasPrefix(os.Args[1], "@") {
		os.Exit(command(os.Args[1], os.Args[2:]))
	}
	os.Exit(setUp(m))
}

func setUp(m *testing.M) int {
	dir, err := os.MkdirTemp("", "golock-matrix-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	// nohup ignores HUP, a shell without job control INT for what it starts with
	// "&". What is caught here is not ignored by what is started from here.
	for _, sig := range []os.Signal{syscall.SIGHUP, syscall.SIGINT} {
		if signal.Ignored(sig) {
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
	// Commands that die of QUIT or ABRT shall not leave core files.
	var core unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &core); err == nil {
		core.Cur = 0
		unix.Setrlimit(unix.RLIMIT_CORE, &core)
	}
	if self, err = os.Executable(); err == nil {
		golock, err = build(dir)
	}
	stop := func() {}
	if err == nil {
		stop, err = startRedis(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer stop()
	return sqltest.Main(m)
}

// build makes the program from the module this test is part of, as a release
// is made, or with the race detector if GOLOCK_TEST_RACE is 1.
func build(dir string) (string, error) {
	gomod, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOMOD: %w", err)
	}
	program := filepath.Join(dir, "golock")
	make := exec.Command("go", "build", "-trimpath", "-o", program, ".")
	make.Env = append(os.Environ(), "CGO_ENABLED=0")
	if os.Getenv("GOLOCK_TEST_RACE") == "1" {
		make = exec.Command("go", "build", "-race", "-o", program, ".")
	}
	make.Dir = filepath.Dir(strings.TrimSpace(string(gomod)))
	if out, err := make.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building golock: %w\n%s", err, out)
	}
	return program, nil
}

// await returns once cond holds and fails the test if it does not come true.
func await(t testing.TB, what string, cond func() bool) {
	t.Helper()
	if !within(limit, cond) {
		t.Fatalf("waited %v in vain: %s; golocks and commands: %s", limit, what, describe(processes(isMarked)))
	}
}

// within reports whether cond came true before d was over.
func within(d time.Duration, cond func() bool) bool {
	pause := 200 * time.Microsecond
	for end := time.Now().Add(d); !cond(); time.Sleep(pause) {
		if time.Now().After(end) {
			return cond()
		}
		pause = min(2*pause, 10*time.Millisecond)
	}
	return true
}

// world is a store, a working directory and the processes started in it.
type world struct {
	t     testing.TB
	dir   string // working directory of everything started
	store string // URL of the store
	mark  string // VARIABLE=VALUE in the environment of everything started
}

var worlds atomic.Int64

const markVariable = "MATRIX_MARK"

func newWorld(t testing.TB) *world {
	t.Helper()
	dir := t.TempDir()
	number := fmt.Sprintf("%d.%d", os.Getpid(), worlds.Add(1))
	w := &world{
		t:     t,
		dir:   filepath.Join(dir, "cwd"),
		store: storeIn(t, dir, number),
		mark:  markVariable + "=" + number,
	}
	for _, d := range []string{"cwd", "store"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		// Again and again: a process may fork while the list is read.
		within(limit, func() bool {
			left := w.living()
			for _, pid := range left {
				w.signal(pid, syscall.SIGKILL)
			}
			return len(left) == 0
		})
	})
	return w
}

// path names a file in the working directory.
func (w *world) path(name string) string { return filepath.Join(w.dir, name) }

// script writes an executable file and returns its path.
func (w *world) script(name, text string) string {
	w.t.Helper()
	// Written under another name and renamed by a process of its own, so that
	// no fork of this process holds it open for writing (ETXTBSY).
	path := w.path(name)
	output(w.t, text, "sh", "-c", `cat >"$0.new" && chmod 755 "$0.new" && mv "$0.new" "$0"`, path)
	return path
}

// output runs a tool and returns what it prints.
func output(t testing.TB, stdin string, argv ...string) string {
	t.Helper()
	ctx, end := context.WithTimeout(context.Background(), limit)
	defer end()
	tool := exec.CommandContext(ctx, argv[0], argv[1:]...)
	tool.Stdin = strings.NewReader(stdin)
	out, err := tool.CombinedOutput()
	if err != nil {
		t.Fatalf("%q: %v\n%s", argv, err, out)
	}
	return string(out)
}

// living lists the processes of this world that have not ended, golock among
// them, whatever group or session they moved to.
func (w *world) living() []int { return processes(w.has) }

// has reports whether a process belongs to this world. A zombie does not.
func (w *world) has(pid int) bool {
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	return err == nil && slices.Contains(strings.Split(string(env), "\x00"), w.mark)
}

// isMarked reports whether a process belongs to any world.
func isMarked(pid int) bool {
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	return err == nil && bytes.Contains(env, []byte(markVariable+"="))
}

// signal signals a process of this world that is not a child of this one, and
// reports whether it was there: by a pidfd and after a look, so that no later
// process of its number, which may be anybody's, is hit.
func (w *world) signal(pid int, sig syscall.Signal) bool {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	return w.has(pid) && unix.PidfdSendSignal(fd, sig, nil, 0) == nil
}

// kill kills a process that has to be there. (For an instant of its execve it
// has no environment to know it by.)
func (w *world) kill(pid int) {
	w.t.Helper()
	for _, done := range []func() bool{
		func() bool { return w.signal(pid, syscall.SIGKILL) || !alive(pid) },
		func() bool { return !alive(pid) },
	} {
		if !within(limit, done) {
			w.t.Fatalf("cannot kill %s; there are %s", describe([]int{pid}), w.all())
		}
	}
}

// all describes the processes of this world.
func (w *world) all() string { return describe(w.living()) }

// processes lists the processes that fit and are no zombies.
func processes(fit func(pid int) bool) []int {
	dirs, _ := os.ReadDir("/proc")
	var pids []int
	for _, d := range dirs {
		pid, err := strconv.Atoi(d.Name())
		if err == nil && fit(pid) && alive(pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// children lists the children of a process, zombies included.
func children(parent int) []int {
	dirs, _ := os.ReadDir("/proc")
	var pids []int
	for _, d := range dirs {
		if pid, err := strconv.Atoi(d.Name()); err == nil && stat(pid).parent == parent {
			pids = append(pids, pid)
		}
	}
	return pids
}

// procStat is what /proc/PID/stat says; the zero value means no such process.
type procStat struct {
	state   byte // R S D T Z ...
	parent  int
	group   int
	session int
}

func stat(pid int) procStat {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return procStat{}
	}
	_, rest, ok := strings.Cut(string(text[bytes.LastIndexByte(text, ')'):]), " ")
	if !ok {
		return procStat{}
	}
	var s procStat
	fmt.Sscanf(rest, "%c %d %d %d", &s.state, &s.parent, &s.group, &s.session)
	return s
}

func alive(pid int) bool {
	s := stat(pid).state
	return s != 0 && s != 'Z' && s != 'X'
}

func stopped(pid int) bool { return stat(pid).state == 'T' }

// caught returns the signals that a process has handlers for or blocks.
func caught(pid int) uint64 {
	var mask uint64
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ":\t")
		if key == "SigCgt" || key == "SigBlk" {
			bits, _ := strconv.ParseUint(value, 16, 64)
			mask |= bits
		}
	}
	return mask
}

// call is one golock (or other program) that is going to be started.
type call struct {
	w      *world
	argv   []string
	path   string   // of the program; "" finds argv[0]
	env    []string // the whole environment
	dir    string
	stdin  *os.File // nil: /dev/null, or with start a pipe
	stdout *os.File // nil: a file, or with start a pipe read line by line
	stderr *os.File // nil: a file
	extra  []*os.File
}

// exec prepares any program of this world.
func (w *world) exec(argv ...string) *call {
	return &call{
		w: w, argv: argv, dir: w.dir,
		env: []string{"PATH=/usr/local/bin:/usr/bin:/bin", "LC_ALL=C", w.mark},
	}
}

// golock prepares golock with exactly these arguments.
func (w *world) golock(args ...string) *call {
	return w.exec(append([]string{golock}, args...)...)
}

// job prepares `golock run` of the lock "job" in this world's store.
func (w *world) job(args ...string) *call {
	return w.golock(append([]string{"run", "--store", w.store, "--name", "job"}, args...)...)
}

// by puts a program in front of the one that was prepared.
func (c *call) by(argv ...string) *call {
	c.argv = append(slices.Clone(argv), c.argv...)
	return c
}

// sh lets a shell do something and then become what was prepared.
func (c *call) sh(script string) *call {
	return c.by("bash", "-c", script+"; exec \"$@\"", "bash")
}

func (c *call) setenv(vars ...string) *call {
	c.env = append(slices.Clone(c.env), vars...)
	return c
}

// result is how a process ended.
type result struct {
	code   int            // exit code; -1 if it died of a signal
	signal syscall.Signal // 0 if it exited
	stdout string
	stderr string
	took   time.Duration
}

func (r result) String() string {
	end := fmt.Sprintf("exit code %d", r.code)
	if r.signal != 0 {
		end = fmt.Sprintf("died of signal %d", r.signal)
	}
	return fmt.Sprintf("%s after %v, stdout %.300q, stderr %.600q", end, r.took.Round(time.Millisecond), r.stdout, r.stderr)
}

// proc is a started process, the leader of a session without a terminal.
type proc struct {
	t       testing.TB
	w       *world
	argv    []string
	process *os.Process // which is signalled by a pidfd and never after its end
	pid     int
	began   time.Time
	in      *os.File    // the write end of its stdin, if start made the pipe
	lines   chan string // its stdout, if start made the pipe; closed at the end
	stderr  *os.File
	stdout  *os.File
	ended   chan struct{}
	outcome result
}

func (c *call) scratch() *os.File {
	c.w.t.Helper()
	f, err := os.CreateTemp(filepath.Dir(c.w.dir), "out")
	if err != nil {
		c.w.t.Fatal(err)
	}
	c.w.t.Cleanup(func() { f.Close() })
	return f
}

// start runs what was prepared with a pipe as stdin and one as stdout.
func (c *call) start() *proc {
	t := c.w.t
	t.Helper()
	p := &proc{t: t, w: c.w, argv: c.argv}
	var ours []*os.File // the ends that belong to the new process
	if c.stdin == nil {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		c.stdin, p.in, ours = r, w, append(ours, r)
		t.Cleanup(func() { w.Close() })
	}
	if c.stdout == nil {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		c.stdout, ours = w, append(ours, w)
		p.lines = make(chan string, 1<<16)
		go func() {
			defer close(p.lines)
			defer r.Close()
			for in := bufio.NewScanner(r); in.Scan(); {
				p.lines <- in.Text()
			}
		}()
	}
	c.launch(p)
	for _, f := range ours {
		f.Close()
	}
	return p
}

// run runs what was prepared to its end.
func (c *call) run() result {
	c.w.t.Helper()
	return c.begin().wait()
}

// runAll runs all that was prepared, a few at a time.
func runAll(calls []*call) []result {
	procs := make([]*proc, len(calls))
	results := make([]result, len(calls))
	for i, c := range calls {
		procs[i] = c.begin()
		if i >= 3 {
			results[i-3] = procs[i-3].wait()
		}
	}
	for i := max(0, len(calls)-3); i < len(calls); i++ {
		results[i] = procs[i].wait()
	}
	return results
}

// begin starts what was prepared, with stdin from /dev/null and stdout to a
// file.
func (c *call) begin() *proc {
	c.w.t.Helper()
	p := &proc{t: c.w.t, w: c.w, argv: c.argv}
	if c.stdin == nil {
		null, err := os.Open(os.DevNull)
		if err != nil {
			c.w.t.Fatal(err)
		}
		defer null.Close()
		c.stdin = null
	}
	if c.stdout == nil {
		c.stdout = c.scratch()
		p.stdout = c.stdout
	}
	c.launch(p)
	return p
}

func (c *call) launch(p *proc) {
	t := c.w.t
	t.Helper()
	if c.stderr == nil {
		c.stderr = c.scratch()
		p.stderr = c.stderr
	}
	path := c.path
	if path == "" {
		var err error
		if path, err = exec.LookPath(c.argv[0]); err != nil {
			t.Fatal(err)
		}
	}
	p.ended = make(chan struct{})
	p.began = time.Now()
	var err error
	p.process, err = os.StartProcess(path, c.argv, &os.ProcAttr{
		Dir:   c.dir,
		Env:   c.env,
		Files: append([]*os.File{c.stdin, c.stdout, c.stderr}, c.extra...),
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		t.Fatalf("starting %q: %v", c.argv, err)
	}
	p.pid = p.process.Pid
	go func() {
		defer close(p.ended)
		state, err := p.process.Wait()
		p.outcome.took = time.Since(p.began)
		if err != nil {
			p.outcome.code = -2
			p.outcome.stderr = err.Error()
			return
		}
		p.outcome.code = state.ExitCode()
		if ws := state.Sys().(syscall.WaitStatus); ws.Signaled() {
			p.outcome.signal = ws.Signal()
		}
	}()
	t.Cleanup(func() {
		_ = p.process.Kill()
		select {
		case <-p.ended:
		case <-time.After(limit):
			t.Errorf("killed, and still there after %v: %s", limit, describe([]int{p.pid}))
		}
	})
}

// running reports whether the process has not been reaped yet.
func (p *proc) running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// wait returns how the process ended and fails the test if it does not end.
func (p *proc) wait() result {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(limit):
		p.t.Fatalf("%q has not ended after %v; there are %s; stderr %q", p.argv, limit, p.w.all(), slurp(p.stderr))
	}
	r := p.outcome
	r.stdout, r.stderr = slurp(p.stdout), r.stderr+slurp(p.stderr)
	return r
}

func slurp(f *os.File) string {
	if f == nil {
		return ""
	}
	info, err := f.Stat()
	if err != nil {
		return err.Error()
	}
	text := make([]byte, info.Size())
	n, _ := f.ReadAt(text, 0)
	return string(text[:n])
}

// line returns the next line the command wrote.
func (p *proc) line() string {
	p.t.Helper()
	select {
	case s, ok := <-p.lines:
		if !ok {
			p.t.Fatalf("%q closed its output: %v", p.argv, p.wait())
		}
		return s
	case <-time.After(limit):
		p.t.Fatalf("%q wrote no further line in %v; there are %s; stderr %q", p.argv, limit, p.w.all(), slurp(p.stderr))
	}
	return ""
}

// rest returns the lines to the end of the output, which comes when nobody is
// left who could write.
func (p *proc) rest() []string {
	p.t.Helper()
	var rest []string
	for late := time.After(limit); ; {
		select {
		case line, ok := <-p.lines:
			if !ok {
				return rest
			}
			rest = append(rest, line)
		case <-late:
			p.t.Fatalf("after %v the output of %q has not ended; it wrote %q; there are %s; %v", limit, p.argv, rest, p.w.all(), p.wait())
		}
	}
}

// expect reads a line and fails the test if it is another one.
func (p *proc) expect(want string) {
	p.t.Helper()
	if got := p.line(); got != want {
		p.t.Fatalf("the command wrote %q, want %q", got, want)
	}
}

// expectPID reads a line "WORD PID" and returns the number.
func (p *proc) expectPID(word string) int {
	p.t.Helper()
	got := p.line()
	pid, err := strconv.Atoi(strings.TrimPrefix(got, word+" "))
	if err != nil {
		p.t.Fatalf("the command wrote %q, want %q and a number", got, word)
	}
	return pid
}

// tell writes a line to the command's stdin.
func (p *proc) tell(line string) {
	p.t.Helper()
	if _, err := io.WriteString(p.in, line+"\n"); err != nil {
		p.t.Fatal(err)
	}
}

// signal sends a signal to the process itself, not to its group.
func (p *proc) signal(sig syscall.Signal) {
	p.t.Helper()
	if !p.running() {
		p.t.Fatalf("signal %d: %q has ended: %v", sig, p.argv, p.wait())
	}
	if err := p.process.Signal(sig); err != nil {
		p.t.Fatalf("signal %d to %q: %v", sig, p.argv, err)
	}
}

// expectCode fails the test unless the process ended with this exit code.
func (r result) expectCode(t testing.TB, want int) {
	t.Helper()
	if r.code != want {
		t.Fatalf("%v, want exit code %d", r, want)
	}
}

// complaint checks what a failing golock leaves: the code, nothing on stdout,
// and on stderr one line with the prefix that holds one of the words.
func (r result) complaint(t testing.TB, code int, words ...string) {
	t.Helper()
	r.expectCode(t, code)
	if r.stdout != "" {
		t.Errorf("stdout is %q, want nothing", r.stdout)
	}
	r.oneLine(t, words...)
}

func (r result) oneLine(t testing.TB, words ...string) {
	t.Helper()
	line, rest, ended := strings.Cut(r.stderr, "\n")
	if !ended || rest != "" || !strings.HasPrefix(line, "golock: ") || len(line) <= len("golock: ") {
		t.Errorf("stderr is %q, want exactly one line that begins with %q", r.stderr, "golock: ")
	}
	if len(words) > 0 && !slices.ContainsFunc(words, func(s string) bool { return strings.Contains(line, s) }) {
		t.Errorf("stderr is %q, want it to name %q", r.stderr, words)
	}
}

// isFree fails the test unless the slot of "job" can be had at once.
func (w *world) isFree() {
	w.t.Helper()
	if r := w.job("-n", "--", "true").run(); r.code != 0 {
		w.t.Fatalf("the slot is not free: %v", r)
	}
}

// isTaken fails the test unless the slot of "job" is held.
func (w *world) isTaken() {
	w.t.Helper()
	if r := w.job("-n", "--", "true").run(); r.code != 75 {
		w.t.Fatalf("the slot is not taken: %v", r)
	}
}

// entry is one object of `golock ls --json`.
type entry struct {
	ID       string
	State    string
	Slots    []int
	Position int
	PID      int
	Orphaned bool
}

func (w *world) ls() []entry {
	w.t.Helper()
	r := w.golock("ls", "job", "--json", "--store", w.store).run()
	if r.code != 0 {
		w.t.Fatalf("golock ls: %v", r)
	}
	var list []entry
	if err := json.Unmarshal([]byte(r.stdout), &list); err != nil {
		w.t.Fatalf("golock ls wrote %q: %v", r.stdout, err)
	}
	return list
}

// waiters lists the process numbers of those in the queue, the next one first.
func (w *world) waiters() []int {
	w.t.Helper()
	var pids []int
	for _, e := range w.ls() {
		if e.State == "waiting" {
			pids = append(pids, e.PID)
		}
	}
	return pids
}

// awaitWaiters returns once exactly these wait, in this order.
func (w *world) awaitWaiters(pids ...int) {
	w.t.Helper()
	var got []int
	if !within(limit, func() bool { got = w.waiters(); return slices.Equal(got, pids) }) {
		w.t.Fatalf("waiting are %v, want %v", got, pids)
	}
}

// holder starts a golock that holds the slot until its stdin says so.
func (w *world) holder(flags ...string) *proc {
	w.t.Helper()
	p := w.job(append(flags, "--", "sh", "-c", "echo holding; read code; exit $code")...).start()
	p.expect("holding")
	return p
}

// finish ends a holder.
func (p *proc) finish() {
	p.t.Helper()
	p.tell("0")
	p.wait().expectCode(p.t, 0)
}

// noneLeft waits until no process of this world is left.
func (w *world) noneLeft() {
	w.t.Helper()
	var left []int
	if !within(limit, func() bool { left = w.living(); return len(left) == 0 }) {
		w.t.Fatalf("still running: %s", describe(left))
	}
}

// noneNow fails the test if a process of this world is running now.
func (w *world) noneNow() {
	w.t.Helper()
	if left := w.living(); len(left) > 0 {
		w.t.Fatalf("still running: %s", describe(left))
	}
}

func describe(pids []int) string {
	var all []string
	for _, pid := range pids {
		cmdline, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		asleep, _ := os.ReadFile(fmt.Sprintf("/proc/%d/wchan", pid))
		s := stat(pid)
		all = append(all, fmt.Sprintf("%d (child of %d, group %d, %c in %s) %.200q", pid, s.parent, s.group, s.state, asleep, strings.ReplaceAll(string(cmdline), "\x00", " ")))
	}
	if all == nil {
		return "no processes"
	}
	return strings.Join(all, "; ")
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, os.ErrNotExist)
}

// awaitFile waits until a file has text that ends in a newline, returns it.
func awaitFile(t testing.TB, path string) string {
	t.Helper()
	var text []byte
	await(t, path+" appears", func() bool {
		text, _ = os.ReadFile(path)
		return bytes.HasSuffix(text, []byte("\n"))
	})
	return strings.TrimSpace(string(text))
}

func awaitPID(t testing.TB, path string) int {
	t.Helper()
	pid, err := strconv.Atoi(awaitFile(t, path))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}
