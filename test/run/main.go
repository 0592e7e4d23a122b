// Command run runs all tests: it is what make test calls. It builds golock and
// the tests once, starts one server of each kind for all packages, runs the
// passes of passes.go and says what was slow and how to replay what failed. With
// a regular expression it runs only what fits by its pass and package:
//
//	bin/test-run 'black box golock/test/crash'
//
// Everything it starts is its descendant and works below one temporary
// directory. Whatever ends it, both are gone afterwards.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks/etcd/etcdtest"
	"golock/locks/locktest/server"
	"golock/locks/redis/redistest"
	"golock/locks/sql/sqltest"
	"golock/test/testkit"
)

func main() {
	var err error
	code := 1
	if dir := os.Getenv(dirVariable); dir == "" {
		code, err = supervise()
	} else if err = run(dir); err == nil {
		code = 0
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "make test:", err)
	}
	os.Exit(code)
}

// dirVariable names the temporary directory to the process that runs the tests.
const dirVariable = "LOCKTEST_DIR"

// supervise runs this program again, to run the tests, collects what becomes an
// orphan meanwhile, and ends and removes what is left. It is a process of its
// own because it collects any child: thousands of zombies would slow down every
// look at /proc.
func supervise() (code int, err error) {
	if err := check(); err != nil {
		return 1, err
	}
	runtime.LockOSThread() // PR_SET_PDEATHSIG belongs to a thread
	if err := errors.Join(unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0),
		unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(syscall.SIGTERM), 0, 0, 0)); err != nil {
		return 1, fmt.Errorf("prctl: %w", err)
	}
	dir, err := os.MkdirTemp("", "gl-") // short: sockets below it have at most 107 bytes for their path
	if err == nil {
		err = os.Chmod(dir, 0o755) // tests are several users
	}
	if err != nil {
		return 1, err
	}
	told := make(chan os.Signal, 1)
	nohup := signal.Ignored(syscall.SIGHUP) // by nohup(1): a hangup then ends nothing
	signal.Notify(told, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	tests, err := os.StartProcess("/proc/self/exe", os.Args, &os.ProcAttr{
		Env:   append(os.Environ(), dirVariable+"="+dir, "TMPDIR="+dir),
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
		Sys:   &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL},
	})
	if err != nil {
		return 1, err
	}
	go func() {
		for sig := range told {
			if sig != syscall.SIGHUP || !nohup {
				_ = syscall.Kill(tests.Pid, syscall.SIGTERM)
			}
		}
	}()
	status := collect(tests.Pid)
	left := end(dir)
	fmt.Printf("%.0f s of processor time in all\n", workOfChildren().Seconds())
	if status != 0 {
		return status, nil
	}
	if len(left) > 0 {
		return 1, fmt.Errorf("tests have left processes: %s", strings.Join(left, "; "))
	}
	return 0, nil
}

// collect waits for the end of a child, and for all others that end meanwhile.
func collect(child int) (code int) {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case err == syscall.ECHILD:
			return 1
		case pid == child && status.Exited():
			return status.ExitStatus()
		case pid == child:
			return 1
		}
	}
}

// run runs the tests, with all files in a directory.
func run(dir string) (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	r := &results{began: time.Now()}
	defer server.Close() // what is left then was left by tests
	only, err := regexp.Compile(strings.Join(os.Args[1:], " "))
	if err != nil {
		return err
	}
	servers, err := setUp(ctx, dir)
	if err != nil {
		return err
	}
	todo, err := plan(ctx, dir, only, r)
	if err != nil {
		return err
	}
	r.spend("compiling, data of servers", workOfChildren())
	perform(ctx, todo, filepath.Join(dir, "test2json"), servers, r)
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	before := workOfChildren()
	server.Close()
	r.spend("the servers that all share", workOfChildren()-before)
	return r.summary(os.Stdout)
}

// workOfChildren is the processor time of all processes that this one has waited for.
func workOfChildren() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &used); err != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// check says at once what would fail all tests later.
func check() error {
	if os.Geteuid() != 0 {
		return errors.New("not root: tests run as several users, and in mount and time namespaces of their own")
	}
	// unshare(1) changes how mounts of / propagate, which fails where / is no mount.
	if out, err := exec.Command("unshare", "--mount", "true").CombinedOutput(); err != nil {
		return fmt.Errorf("tests need mount namespaces (%s): in a chroot, first make its directory a mount: mount --bind DIR DIR",
			strings.TrimSpace(string(out)))
	}
	const needed = 4 << 30
	var fs unix.Statfs_t
	if err := unix.Statfs(os.TempDir(), &fs); err != nil {
		return fmt.Errorf("%s: %w", os.TempDir(), err)
	}
	if free := fs.Bavail * uint64(fs.Bsize); free < needed {
		return fmt.Errorf("%s has %d MiB free, tests need %d", os.TempDir(), free>>20, needed>>20)
	}
	return nil
}

// setUp builds the program and starts the servers. It returns the variables by
// which tests find them.
func setUp(ctx context.Context, dir string) (variables []string, err error) {
	if out, err := exec.CommandContext(ctx, "go", "mod", "download").CombinedOutput(); err != nil {
		line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
		return nil, fmt.Errorf("the modules of go.mod cannot be downloaded: %s", line)
	}
	testkit.TimeOfStart() // once, for all packages
	golock := filepath.Join(dir, "golock")
	if err := testkit.Build(golock); err != nil {
		return nil, err
	}
	convert := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", filepath.Join(dir, "test2json"), "cmd/test2json")
	convert.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := convert.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("test2json: %w\n%s", err, out)
	}
	lean, err := testkit.BuildPair(dir)
	if err != nil {
		return nil, err
	}
	redis, err := redistest.Share()
	if err != nil {
		return nil, err
	}
	databases, err := sqltest.Share()
	if err != nil {
		return nil, err
	}
	etcd, err := etcdtest.Share()
	if err != nil {
		return nil, err
	}
	return append(databases, redis, etcd, testkit.BinaryVariable+"="+golock, testkit.PairVariable+"="+lean), nil
}

// end kills what still runs, removes the directory and what is mounted there,
// and describes the processes that it found.
func end(dir string) (left []string) {
	// Those whose parent is killed become children of this process.
	for first := true; ; first = false {
		children := testkit.Children(os.Getpid())
		for _, pid := range children {
			if first && testkit.Alive(pid) {
				left = append(left, testkit.Describe([]int{pid}))
			}
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		if len(children) == 0 {
			break
		}
		for range children {
			_, _ = syscall.Wait4(-1, nil, 0, nil)
		}
	}
	mounts, _ := os.ReadFile("/proc/self/mounts")
	for line := range strings.Lines(string(mounts)) {
		if field := strings.Fields(line); len(field) > 1 && strings.HasPrefix(field[1], dir+"/") {
			_ = unix.Unmount(field[1], unix.MNT_DETACH)
		}
	}
	os.RemoveAll(dir)
	return left
}
