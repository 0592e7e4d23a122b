// Package shell_test uses golock acquire, renew, release and held as scripts
// do: in dash and in bash, on a local store and on a Redis server.
package shell_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks/redis/redistest"
)

// patience bounds every wait for something that must happen.
const patience = 30 * time.Second

var (
	golock  string
	scripts string
)

func TestMain(m *testing.M) {
	code, err := build(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func build(m *testing.M) (int, error) {
	root, err := filepath.Abs("../..")
	if err != nil {
		return 1, err
	}
	scripts = filepath.Join(root, "test/shell/testdata")
	bin, err := os.MkdirTemp("", "golock-shell")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(bin)
	golock = filepath.Join(bin, "golock")
	cmd := exec.Command("go", "build", "-trimpath", "-o", golock, ".")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return 1, fmt.Errorf("go build in %s: %w\n%s", root, err, out)
	}
	return m.Run(), nil
}

// world is one shell and one store, and a directory to work in.
type world struct {
	testing.TB
	shell  string
	dir    string
	env    []string
	leased bool
}

// everywhere runs a test in each shell on each store.
func everywhere(t *testing.T, test func(w *world)) {
	for _, store := range []string{"local", "redis"} {
		for _, shell := range []string{"dash", "bash"} {
			t.Run(store+"/"+shell, func(t *testing.T) {
				t.Parallel()
				path, err := exec.LookPath(shell)
				if err != nil {
					t.Fatalf("%v; run: make deps", err)
				}
				w := &world{TB: t, shell: path, dir: t.TempDir(), leased: store == "redis"}
				url := "local://" + w.dir + "/locks"
				if w.leased {
					url = redistest.Start(t).SocketURL("quarantine=0")
				}
				w.env = []string{"PATH=" + filepath.Dir(golock) + ":/usr/bin:/bin", "GOLOCK_STORE=" + url, "LC_ALL=C"}
				test(w)
			})
		}
	}
}

// proc is a started process.
type proc struct {
	*exec.Cmd
	w        *world
	out, err *os.File
	ended    chan struct{}
}

func (w *world) start(argv ...string) *proc {
	w.Helper()
	p := &proc{Cmd: exec.Command(argv[0], argv[1:]...), w: w, ended: make(chan struct{})}
	if argv[0] == "golock" {
		p.Path, p.Err = golock, nil
	}
	p.Dir, p.Env = w.dir, w.env
	for _, f := range []**os.File{&p.out, &p.err} {
		var err error
		if *f, err = os.CreateTemp(w.TempDir(), ""); err != nil {
			w.Fatal(err)
		}
	}
	p.Stdout, p.Stderr = p.out, p.err
	p.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := p.Cmd.Start(); err != nil {
		w.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		_ = p.Cmd.Wait()
	}()
	w.Cleanup(func() {
		_ = p.Process.Kill()
		<-p.ended
		p.out.Close()
		p.err.Close()
	})
	return p
}

func (w *world) script(name string, args ...string) *proc {
	w.Helper()
	return w.start(append([]string{w.shell, filepath.Join(scripts, name)}, args...)...)
}

func (w *world) sh(text string) *proc {
	w.Helper()
	return w.start(w.shell, "-c", text)
}

func text(f *os.File) string {
	b, _ := os.ReadFile(f.Name())
	return string(b)
}

// code waits for the end.
func (p *proc) code() int {
	p.w.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.w.Fatalf("%q does not end; stdout %q, stderr %q", p.Args, text(p.out), text(p.err))
	}
	if ws := p.ProcessState.Sys().(syscall.WaitStatus); ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return p.ProcessState.ExitCode()
}

// ends waits for the end and demands the exit code.
func (p *proc) ends(code int) *proc {
	p.w.Helper()
	if got := p.code(); got != code {
		p.w.Fatalf("%q: exit code %d, want %d; stdout %q, stderr %q", p.Args, got, code, text(p.out), text(p.err))
	}
	return p
}

// silent demands that nothing was said on standard error.
func (p *proc) silent() *proc {
	p.w.Helper()
	if s := text(p.err); s != "" {
		p.w.Errorf("%q said %q", p.Args, s)
	}
	return p
}

func (w *world) await(what string, done func() bool) {
	w.Helper()
	for end := time.Now().Add(patience); !done(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			w.Fatalf("never: %s", what)
		}
	}
}

// line waits for the first line that a process prints.
func (p *proc) line() string {
	p.w.Helper()
	p.w.await("a line of "+strings.Join(p.Args, " "), func() bool { return strings.Contains(text(p.out), "\n") })
	first, _, _ := strings.Cut(text(p.out), "\n")
	return first
}

var idForm = regexp.MustCompile(`^[0-9a-f]{32}-[0-9a-f]{32}$`)

// ids are those that are held or waited for under a name.
func (w *world) ids(name, state string) []string {
	w.Helper()
	out := text(w.start("golock", "ls", "--json", name).ends(0).out)
	var ids []string
	for _, m := range regexp.MustCompile(`"id": "([^"]*)",\s*"state": "([^"]*)"`).FindAllStringSubmatch(out, -1) {
		if m[2] == state {
			ids = append(ids, m[1])
		}
	}
	return ids
}

// free demands that nobody holds or waits, within patience.
func (w *world) free(name string) {
	w.Helper()
	w.await(name+" is free", func() bool { return len(w.ids(name, "holding"))+len(w.ids(name, "waiting")) == 0 })
}

// What golock tells the keeping process has every length, those at which a
// buffer is just full among them.
func TestEveryLength(t *testing.T) {
	everywhere(t, func(w *world) {
		if w.leased {
			return // the same words, and slower
		}
		w.env = append(w.env, "NAMES=250")
		w.script("lengths.sh").ends(0).silent()
	})
}

func TestExclusive(t *testing.T) {
	everywhere(t, func(w *world) {
		count := filepath.Join(w.dir, "count")
		if err := os.WriteFile(count, []byte("0\n"), 0o600); err != nil {
			w.Fatal(err)
		}
		var all []*proc
		for range 4 {
			all = append(all, w.script("exclusive.sh", count))
		}
		for _, p := range all {
			p.ends(0).silent()
		}
		if b, _ := os.ReadFile(count); string(b) != "40\n" {
			w.Errorf("counted to %s, want 40", b)
		}
	})
}

func TestScripts(t *testing.T) {
	for _, script := range []string{"shared.sh", "semaphore.sh", "timeout.sh", "nested.sh", "replaced.sh"} {
		t.Run(script, func(t *testing.T) {
			everywhere(t, func(w *world) { w.script(script).ends(0).silent() })
		})
	}
}

func TestTrap(t *testing.T) {
	for how, code := range map[string]int{"ends": 0, "exits": 7, "fails": 1, "released": 79} {
		t.Run(how, func(t *testing.T) {
			everywhere(t, func(w *world) {
				w.script("trap.sh", how).ends(code).silent()
				if ids := w.ids("trap", "holding"); len(ids) != 0 {
					w.Errorf("still held: %v", ids)
				}
			})
		})
	}
	t.Run("interrupted", func(t *testing.T) {
		everywhere(t, func(w *world) {
			if err := unix.Mkfifo(filepath.Join(w.dir, "fifo"), 0o600); err != nil {
				w.Fatal(err)
			}
			p := w.sh(`exec "` + w.shell + `" "` + scripts + `/trap.sh" waits <>fifo`)
			p.line()
			if err := unix.Kill(-p.Process.Pid, unix.SIGTERM); err != nil {
				w.Fatal(err)
			}
			p.ends(143)
			if ids := w.ids("trap", "holding"); len(ids) != 0 {
				w.Errorf("still held: %v", ids)
			}
		})
	})
}

func TestCommitStep(t *testing.T) {
	everywhere(t, func(w *world) {
		w.script("commit.sh", "given-back").ends(79).silent()
		if _, err := os.Stat(filepath.Join(w.dir, "site")); !errors.Is(err, os.ErrNotExist) {
			w.Error("the new version is there")
		}
		w.script("commit.sh", "kept").ends(0).silent()
		if _, err := os.Stat(filepath.Join(w.dir, "site")); err != nil {
			w.Error(err)
		}
	})
}

// keeperOf finds the process that keeps a slot.
func (w *world) keeperOf(name string) int {
	w.Helper()
	out := text(w.start("golock", "ls", "--json", name).ends(0).out)
	m := regexp.MustCompile(`"pid": (\d+)`).FindStringSubmatch(out)
	if m == nil {
		w.Fatalf("nobody holds %s: %s", name, out)
	}
	pid, _ := strconv.Atoi(m[1])
	return pid
}

func alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !bytes.Contains(b[bytes.LastIndexByte(b, ')'):], []byte(") Z"))
}

// The keeper has nothing of the script's: files, terminal, directory; the
// script has no zombie of it.
func TestKeeperStandsAlone(t *testing.T) {
	everywhere(t, func(w *world) {
		hold(w, func(p *proc, script int) {
			id := p.line()
			if !idForm.MatchString(id) {
				w.Fatalf("printed %q", id)
			}
			pid := w.keeperOf("k")
			proc := fmt.Sprintf("/proc/%d/", pid)
			files, err := os.ReadDir(proc + "fd")
			if err != nil {
				w.Fatal(err)
			}
			for _, f := range files {
				to, _ := os.Readlink(proc + "fd/" + f.Name())
				if n, _ := strconv.Atoi(f.Name()); n < 3 && to != "/dev/null" || strings.Contains(to, "seven") || strings.HasPrefix(to, "/dev/pts") ||
					strings.Contains(to, filepath.Base(p.out.Name())) {
					w.Errorf("the keeper has %s -> %s open", f.Name(), to)
				}
			}
			if cwd, _ := os.Readlink(proc + "cwd"); cwd != "/" {
				w.Errorf("its directory is %s", cwd)
			}
			if sid, _ := unix.Getsid(pid); sid != pid {
				w.Errorf("its session is %d, of the script %d", sid, script)
			}
			children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", script, script))
			for _, child := range strings.Fields(string(children)) {
				n, _ := strconv.Atoi(child)
				if !alive(n) || n == pid {
					w.Errorf("the script has the child %d", n)
				}
			}
			// What a terminal sends does nothing to it.
			for _, sig := range []syscall.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGUSR1, unix.SIGWINCH} {
				if err := unix.Kill(pid, sig); err != nil {
					w.Fatal(err)
				}
			}
			w.start("golock", "held", "--id", id).ends(0).silent()
			if !alive(pid) {
				w.Error("a signal ended it")
			}
		})
		w.free("k")
	})
}

// hold runs a script that acquires k for itself with a file of its own open,
// and kills it, with KILL, when use has returned. The slot must be free then at
// once, and the keeper gone.
func hold(w *world, use func(p *proc, script int)) {
	w.Helper()
	w.free("k")
	p := w.sh(`exec 7>seven; id=$(golock acquire --name k --for $$); echo "$id"; while :; do sleep 1000; done`)
	p.line()
	keeper := w.keeperOf("k")
	use(p, p.Process.Pid)
	_ = unix.Kill(-p.Process.Pid, unix.SIGKILL)
	began := time.Now()
	<-p.ended
	w.start("golock", "run", "--name", "k", "--wait", "10", "--", "true").ends(0)
	if d := time.Since(began); d > 2*time.Second {
		w.Errorf("free after %v", d)
	}
	w.await("the keeper is gone", func() bool { return !alive(keeper) })
}

// Who has killed the keeper has freed the slot of a local store, and shortened
// that of another to its TTL; nobody else notices but by asking.
func TestKeeperKilled(t *testing.T) {
	everywhere(t, func(w *world) {
		if w.leased {
			w.env = append(w.env, "TTL=--ttl 1")
		}
		p := w.sh(`id=$(golock acquire --name k --for $$ $TTL); echo "$id"; while :; do sleep 1000; done`)
		id := p.line()
		if err := unix.Kill(w.keeperOf("k"), unix.SIGKILL); err != nil {
			w.Fatal(err)
		}
		w.free("k")
		for _, command := range [][]string{{"held", "--id", id}, {"renew", id}, {"release", id}} {
			w.start(append([]string{"golock"}, command...)...).ends(79)
		}
		if !alive(p.Process.Pid) {
			w.Error("the script is gone")
		}
		w.start("golock", "clean", "-q").ends(0).silent()
		_ = unix.Kill(-p.Process.Pid, unix.SIGKILL)
	})
}

// TERM is how a keeper is told to go, as by a machine that is shut down: it
// gives the slot back.
func TestKeeperTold(t *testing.T) {
	everywhere(t, func(w *world) {
		p := w.sh(`golock acquire --name k --for $$; sleep 1000`)
		id := p.line()
		keeper := w.keeperOf("k")
		if err := unix.Kill(keeper, unix.SIGTERM); err != nil {
			w.Fatal(err)
		}
		w.start("golock", "run", "--name", "k", "--wait", "20", "--", "true").ends(0)
		w.start("golock", "held", "--id", id).ends(79).silent()
		w.await("the keeper is gone", func() bool { return !alive(keeper) })
		_ = unix.Kill(-p.Process.Pid, unix.SIGKILL)
	})
}

// Nobody else's slot is touched by an ID that is over, made up or of another
// lock.
func TestReleaseOfWhatIsOver(t *testing.T) {
	everywhere(t, func(w *world) {
		p := w.sh(`a=$(golock acquire --name k --for $$) && golock release "$a" && b=$(golock acquire --name k --for $$) && echo "$a $b"; sleep 1000`)
		a, b, _ := strings.Cut(p.line(), " ")
		mixed := b[:33] + a[33:]
		for _, id := range []string{a, mixed, strings.Repeat("0", 32) + b[32:]} {
			for _, command := range []string{"release", "renew"} {
				w.start("golock", command, id).ends(79)
			}
			w.start("golock", "held", "--id", id).ends(79).silent()
		}
		w.start("golock", "held", "--id", b).ends(0).silent()
		w.start("golock", "renew", b).ends(0).silent()
		for _, wrong := range []string{"", "x", a + "0"} {
			w.start("golock", "release", wrong).ends(64)
			w.start("golock", "held", "--id", wrong).ends(64)
		}
		w.start("golock", "release", b).ends(0).silent()
		_ = unix.Kill(-p.Process.Pid, unix.SIGKILL)
	})
}

// A signal ends the waiting at once, and nothing of it is left; so does the end
// of the process that it was for.
func TestWaitingEnds(t *testing.T) {
	everywhere(t, func(w *world) {
		holder := w.sh(`golock acquire --name k --for $$; sleep 1000`)
		holder.line()
		for _, sig := range []syscall.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGKILL} {
			p := w.start("golock", "acquire", "--name", "k", "--for", strconv.Itoa(os.Getpid()))
			w.await("it waits", func() bool { return len(w.ids("k", "waiting")) == 1 })
			began := time.Now()
			if err := p.Process.Signal(sig); err != nil {
				w.Fatal(err)
			}
			p.ends(128 + int(sig)).silent()
			if d := time.Since(began); d > time.Second {
				w.Errorf("%v took %v", sig, d)
			}
			if s := text(p.out); s != "" {
				w.Errorf("printed %q", s)
			}
			w.await("its place is gone", func() bool { return len(w.ids("k", "waiting")) == 0 })
		}
		for _, code := range []string{"75", "9"} {
			client := w.start("sleep", "1000")
			p := w.start("golock", "acquire", "--name", "k", "-E", code, "--for", strconv.Itoa(client.Process.Pid))
			w.await("it waits", func() bool { return len(w.ids("k", "waiting")) == 1 })
			_ = client.Process.Kill()
			want, _ := strconv.Atoi(code)
			p.ends(want)
			if s := text(p.err); s != "golock: the process that the slot was for has ended\n" {
				w.Errorf("said %q", s)
			}
		}
		if len(w.ids("k", "holding")) != 1 || len(w.ids("k", "waiting")) != 0 {
			w.Error("the holder is gone, or somebody waits")
		}
		_ = unix.Kill(-holder.Process.Pid, unix.SIGKILL)
		w.free("k")
	})
}

// What is wrong is said before anything is locked.
func TestWrongUse(t *testing.T) {
	everywhere(t, func(w *world) {
		gone := w.start("true")
		<-gone.ended
		for _, args := range [][]string{
			{}, {"--for", "x"}, {"--for", "0"}, {"--for", "-1"}, {"--for", ""}, {"--for", strconv.Itoa(gone.Process.Pid)},
			{"--for", "1", "--weight", "2"}, {"--for", "1", "--time-limit", "1"}, {"--for", "1", "word"}, {"--for", "1", "--max", "0"},
		} {
			p := w.start(append([]string{"golock", "acquire", "--name", "k"}, args...)...).ends(64)
			if text(p.out) != "" || !strings.HasPrefix(text(p.err), "golock: ") {
				w.Errorf("%q: stdout %q, stderr %q", args, text(p.out), text(p.err))
			}
		}
		if p := w.start("golock", "acquire", "--name", "k").ends(64); !strings.Contains(text(p.err), "--for $$") {
			w.Errorf("no hint: %q", text(p.err))
		}
		w.start("golock", "acquire", "--for", "1").ends(64)
		p := w.start("golock", "acquire", "--name", "k", "--for", "none")
		if w.leased {
			p.ends(0)
		} else if p.ends(64); !strings.Contains(text(p.err), "networked") {
			w.Errorf("said %q", text(p.err))
		}
		full := w.sh(`golock acquire --name full --for $$ >/dev/full`).ends(70)
		if !strings.Contains(text(full.err), "no space") {
			w.Errorf("said %q", text(full.err))
		}
		w.free("full")
	})
}

// Without a process the slot lives for its TTL, and is prolonged by as much.
func TestForNone(t *testing.T) {
	everywhere(t, func(w *world) {
		if !w.leased {
			return // refused there: TestWrongUse
		}
		w.sh(`set -eu
id=$(golock acquire --name n --for none --ttl 60)
golock renew "$id"; golock held --id "$id"; golock release "$id"
golock release "$id" 2>/dev/null && exit 1 || [ $? -eq 79 ]
id=$(golock acquire --name n --for none --ttl 2)
for i in 1 2 3 4 5 6; do sleep 0.5; golock renew "$id"; done
golock ls n | grep -q holding
sleep 2.1
golock renew "$id" 2>/dev/null && exit 1 || [ $? -eq 79 ]
golock held --id "$id" && exit 1 || [ $? -eq 79 ]`).ends(0).silent()
	})
}

// Another user can neither ask nor give back.
func TestOtherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("this test needs root, to be somebody else")
	}
	everywhere(t, func(w *world) {
		p := w.sh(`golock acquire --name k --for $$; sleep 1000`)
		id := p.line()
		if !w.leased {
			for dir := w.dir; dir != "/" && dir != os.TempDir(); dir = filepath.Dir(dir) {
				_ = os.Chmod(dir, 0o755)
			}
			_ = os.Chmod(filepath.Dir(golock), 0o755)
			other := exec.Command(golock, "release", id)
			other.Env, other.Dir = w.env, "/"
			other.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 12345, Gid: 12345}}
			if out, err := other.CombinedOutput(); err == nil || other.ProcessState.ExitCode() != 69 {
				w.Errorf("%v: %s", err, out)
			}
		}
		w.start("golock", "held", "--id", id).ends(0)
		_ = unix.Kill(-p.Process.Pid, unix.SIGKILL)
	})
}
