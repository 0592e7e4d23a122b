//go:build integration

package packages_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golock/locks/redis/redistest"
	"golock/test/testkit"
)

// The versions that replace each other. Their names have the same length.
const older, newer = version, "1.2.3+git20261122.abcdef1"

// install makes a version the one that is below a root.
type install func(version string)

// sources has for each version a copy of what packages are made of. The newer programs are the older ones
// with the other version in their data: to link four programs would take longer than all else here.
func sources(t *testing.T) map[string]string {
	t.Helper()
	dirs := map[string]string{older: source(t), newer: source(t)}
	for _, program := range []string{"golock", "golock-lean"} {
		file := filepath.Join(dirs[newer], "bin", program)
		text, err := os.ReadFile(file)
		testkit.Must(t, err)
		testkit.Must(t, os.WriteFile(file, bytes.ReplaceAll(text, []byte(older), []byte(newer)), 0o755))
	}
	return dirs
}

// upgrade is a root with an installed golock, and stores of the test's.
type upgrade struct {
	t       *testing.T
	golock  string
	install install
	stores  map[string]string // name to URL
}

// command is a run of the golock that is installed now.
func (u *upgrade) command(args ...string) *exec.Cmd {
	cmd := exec.Command(u.golock, args...)
	cmd.Env = append(os.Environ(), "GOLOCK_WAIT=10m")
	return cmd
}

// must runs the installed golock, which must end with a code, and returns what it printed.
func (u *upgrade) must(code int, args ...string) string {
	u.t.Helper()
	cmd := u.command(args...)
	output, _ := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != code {
		u.t.Errorf("golock %q: %v, want exit code %d\n%s", args, cmd.ProcessState, code, output)
	}
	return strings.TrimSpace(string(output))
}

// oldRun is a run that an older version began.
type oldRun struct {
	*exec.Cmd
	in     io.WriteCloser
	out    *bufio.Scanner
	output strings.Builder
}

// begin starts a run whose command says that it runs, and ends when its standard input does.
func (u *upgrade) begin(store, name string) *oldRun {
	u.t.Helper()
	r := &oldRun{Cmd: u.command("run", "--store", store, "--name", name, "--", "sh", "-c", "echo running; read line; exit 0")}
	r.Stderr = &r.output
	in, err := r.StdinPipe()
	testkit.Must(u.t, err)
	out, err := r.StdoutPipe()
	testkit.Must(u.t, err)
	r.in, r.out = in, bufio.NewScanner(out)
	testkit.Must(u.t, r.Start())
	return r
}

// running waits until the command runs.
func (r *oldRun) running(t *testing.T) *oldRun {
	t.Helper()
	if !r.out.Scan() || r.out.Text() != "running" {
		t.Fatalf("the command does not run: %v %s", r.Wait(), &r.output)
	}
	return r
}

// ends demands how the run ends.
func (r *oldRun) ends(t *testing.T, code int) {
	t.Helper()
	r.in.Close()
	_ = r.Wait()
	if got := r.ProcessState.ExitCode(); got != code {
		t.Errorf("a run of the version before ended with %d, want %d: %s", got, code, &r.output)
	}
}

// stopped starts golock and stops it when it has executed a number of programs: after 1 the lean
// one is there, after 2 the full one. What comes of the function ends the stop.
func (u *upgrade) stopped(programs int, args ...string) (goOn func()) {
	u.t.Helper()
	runtime.LockOSThread() // the tracer is a thread
	cmd, output := u.command(args...), strings.Builder{}
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	testkit.Must(u.t, cmd.Start())
	for n, deliver := 0, 0; ; {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(cmd.Process.Pid, &status, syscall.WALL, nil)
		testkit.Must(u.t, err)
		deliver = int(status.StopSignal())
		switch {
		case !status.Stopped():
			u.t.Fatalf("%q ended before program %d: %v, %s", args, programs, status, &output)
		case status.StopSignal() == syscall.SIGTRAP:
			n++
			deliver = 0
		}
		if n == programs {
			break
		}
		testkit.Must(u.t, syscall.PtraceCont(cmd.Process.Pid, deliver))
	}
	return func() {
		defer runtime.UnlockOSThread()
		testkit.Must(u.t, syscall.PtraceDetach(cmd.Process.Pid))
		if err := cmd.Wait(); err != nil {
			u.t.Errorf("%q, stopped in program %d while another version was installed: %v, %s", args, programs, err, &output)
		}
	}
}

// starts starts golock again and again until stop is closed, and returns the number of starts. Between two
// of them is a pause: an installation takes a hundred times as long as a start, and needs the processor too.
func (u *upgrade) starts(stop <-chan struct{}, first func(), args ...string) (n int) {
	for {
		select {
		case <-stop:
			return n
		case <-time.After(time.Duration(testkit.Rounds(100, 0)) * time.Millisecond):
		}
		if output, err := u.command(args...).CombinedOutput(); err != nil {
			u.t.Errorf("start %d of %q: %v, %s", n, args, err, output)
		}
		n++
		if n == 1 {
			first()
		}
	}
}

// check installs two versions in turn while runs start, wait and hold, and uses the newer one on
// runs of the older one.
func (u *upgrade) check(times int) {
	t := u.t
	u.install(older)
	type before struct{ holder, waiter, evicted *oldRun }
	runs, ids := map[string]before{}, map[string]string{}
	for name, store := range u.stores {
		b := before{holder: u.begin(store, "held").running(t), evicted: u.begin(store, "evicted").running(t)}
		b.waiter = u.begin(store, "held")
		testkit.Eventually(t, "a run waits", func() bool { return strings.Contains(u.must(0, "ls", "held", "--store", store), "waiting") })
		runs[name] = b
		ids[name] = u.must(0, "acquire", "--store", store, "--name", "acquired", "--for", fmt.Sprint(os.Getpid()))
	}

	var working, begun sync.WaitGroup
	stop := make(chan struct{})
	var loops [][]string // the lean program alone, and become the full one
	for _, store := range slices.Sorted(maps.Values(u.stores)) {
		loops = append(loops, []string{"run", "--store", store, "--name", "started", "--", "true"})
	}
	begun.Add(len(loops))
	for _, args := range loops {
		working.Go(func() { t.Logf("%d starts of %q", u.starts(stop, begun.Done, args...), args) })
	}
	begun.Wait()
	server := u.stores["redis"]
	for i := range 2*times - 1 {
		goOn := u.stopped(1+i%2, "run", "--store", server, "--name", "stopped", "--", "true")
		u.install([]string{newer, older}[i%2])
		goOn()
	}
	close(stop)
	working.Wait()

	if got := u.must(0, "version"); !strings.Contains(got, newer) {
		t.Errorf("installed is %s", got)
	}
	for name, store := range u.stores {
		u.checkOldRuns(name, store, runs[name].holder, runs[name].waiter, runs[name].evicted, ids[name])
	}
}

// checkOldRuns uses each command on what the version before began.
func (u *upgrade) checkOldRuns(name, store string, holder, waiter, evicted *oldRun, id string) {
	t := u.t
	var list []struct{ State string }
	testkit.Must(t, json.Unmarshal([]byte(u.must(0, "ls", "held", "--json", "--store", store)), &list))
	if len(list) != 2 || list[0].State != "holding" || list[1].State != "waiting" {
		t.Errorf("%s: ls of the older version's runs: %v", name, list)
	}
	u.must(0, "held", "--id", id, "--store", store)
	if name == "redis" {
		u.must(0, "renew", id, "--store", store)
	}
	u.must(0, "release", id, "--store", store)
	u.must(79, "held", "--id", id, "--store", store)
	u.must(0, "break", "evicted", "--store", store)
	evicted.ends(t, 79)
	holder.ends(t, 0)
	waiter.running(t).ends(t, 0)
}

// No start fails while packaging/install, which make install and archives run, or dpkg replaces
// golock, and the newer version's commands work on runs of the older one.
func TestUpgrades(t *testing.T) {
	from := sources(t)
	at := map[string]string{"install": filepath.Join(t.TempDir(), "a directory with blanks"), "dpkg": emptyRoot(t)}
	deb := map[string]string{}
	for v, dir := range from {
		do(t, dir, "packaging/stage", "bin/golock", "bin/golock-lean", "tree")
		do(t, dir, "env", leastCompression, "make", "--old-file=build", "deb", "VERSION="+v)
		deb[v] = filepath.Join(dir, "dist", "golock_"+v+"_amd64.deb")
	}
	dpkg := func(argv ...string) {
		t.Helper()
		do(t, at["dpkg"], append([]string{"dpkg", "--root=" + at["dpkg"], "--force-script-chrootless", "--log=/dev/null"}, argv...)...)
	}
	installs := map[string]install{
		"install": func(v string) { do(t, from[v], "env", "PREFIX="+at["install"]+"/usr", "packaging/install", "tree") },
		"dpkg":    func(v string) { dpkg("--force-downgrade", "--install", deb[v]) },
	}
	server := redistest.Start(t).URL("quarantine=0s")
	for name, times := range map[string]int{"install": 2, "dpkg": 1} {
		t.Run(name, func(t *testing.T) {
			u := &upgrade{
				t: t, golock: filepath.Join(at[name], "usr/bin/golock"), install: installs[name],
				stores: map[string]string{"local": "local://" + t.TempDir(), "redis": server},
			}
			u.check(times)
		})
	}
	checkOldVersions(t, filepath.Join(at["install"], "usr/libexec/golock"), installs["install"])
	dpkg("--purge", "golock")
	for _, left := range tree(t, filepath.Join(at["dpkg"], "usr")) {
		if strings.Contains(left, "golock") {
			t.Errorf("left after the purge: %s", left)
		}
	}
}

// checkOldVersions demands that packaging/install removes a version when nobody uses it any more, but
// not the version before.
func checkOldVersions(t *testing.T, libexec string, put install) {
	t.Helper()
	used := filepath.Join(libexec, "lean-0.8")
	do(t, libexec, "cp", "/bin/sleep", used)
	do(t, libexec, "touch", "golock-0.8", "golock-0.7", "lean-0.7")
	process := exec.Command(used, "1000")
	testkit.Must(t, process.Start())
	defer func() { _ = process.Process.Kill() }()
	programs := func() string {
		names, err := filepath.Glob(libexec + "/*")
		testkit.Must(t, err)
		for i := range names {
			names[i] = filepath.Base(names[i])
		}
		return strings.Join(names, " ")
	}
	both := fmt.Sprintf("golock-%[1]s golock-%[2]s lean-%[1]s lean-%[2]s", older, newer)
	put(older)
	if got, want := programs(), "golock-0.8 "+strings.Replace(both, "lean", "lean-0.8 lean", 1); got != want {
		t.Errorf("beside a used version: %s, want %s", got, want)
	}
	testkit.Must(t, process.Process.Kill())
	_ = process.Wait()
	put(older) // again: which version was there before is not known
	if got := programs(); !strings.Contains(got, newer) {
		t.Errorf("after a second installation: %s", got)
	}
	put(newer)
	if got := programs(); got != both {
		t.Errorf("beside an unused version: %s, want %s", got, both)
	}
}
