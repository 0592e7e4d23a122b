package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golock/test/testkit"
)

// work is the tests of one package in one pass.
type work struct {
	pass    pass
	path    string // the import path of the package
	program string // the test binary
}

// long are the packages that take longest, the longest first. They begin first, so that none is
// still at work when all others have ended.
var long = strings.Fields("locks/sql test/packages cli test/crash test/hostile test/check test/guard test/answers " +
	"test/campaign locks/redis test/examples locks/local locks/files locks/open test/matrix test/policy runner")

// apart are packages that are not tested at the same time: both keep servers busy whose answers must
// not be late.
var apart = []string{module + "/locks/sql", module + "/test/crash"}

// mayJoin reports whether a package may be tested beside those that are. None is tested twice at the
// same time: some choose ports.
func mayJoin(running map[string]bool, path string) bool {
	isRunning := func(path string) bool { return running[path] }
	return !running[path] && !(slices.Contains(apart, path) && slices.ContainsFunc(apart, isRunning))
}

// rank is the place of a package in that order.
func rank(path string) int {
	if i := slices.Index(long, strings.TrimPrefix(path, module+"/")); i >= 0 {
		return i
	}
	return len(long)
}

// plan compiles the tests of all passes below a directory and gives what there is to do, in its order. Only
// those whose pass and package fit the expression are compiled.
func plan(ctx context.Context, dir string, only *regexp.Regexp, r *results) (todo []work, err error) {
	list, err := exec.CommandContext(ctx, "go", "list", "-tags", "integration", "./...").Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	for _, p := range passes {
		p, err := p.where()
		if err == nil {
			var more []work
			fits := func(path string) bool { return p.packages(path) && only.MatchString(p.name+" "+path) }
			more, err = p.compile(ctx, dir, slices.DeleteFunc(strings.Fields(string(list)), func(path string) bool { return !fits(path) }))
			todo = append(todo, more...)
		}
		r.add(p.name, err)
	}
	slices.SortStableFunc(todo, func(a, b work) int { return rank(a.path) - rank(b.path) })
	return todo, nil
}

// compile makes those test binaries of the pass that no pass before it has made.
func (p pass) compile(ctx context.Context, dir string, packages []string) (todo []work, err error) {
	at := filepath.Join(dir, "tests-"+p.kind.name)
	missing := slices.Concat([]string{"test", "-c", "-o", at + "/", "-vet=off", "-trimpath", "-ldflags=-s -w"}, p.kind.flags)
	count := len(missing)
	for _, path := range packages {
		program := filepath.Join(at, filepath.Base(path)+".test")
		todo = append(todo, work{p, path, program})
		if _, err := os.Stat(program); err != nil {
			missing = append(missing, path)
		}
	}
	if len(missing) > count {
		if err := os.MkdirAll(at, 0o755); err != nil {
			return nil, err
		}
		cmd := exec.CommandContext(ctx, "go", missing...) // make lint vets all packages
		cmd.Env = slices.Concat(os.Environ(), p.kind.env)
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("compiling the tests: %w\n%s", err, out)
		}
	}
	return slices.DeleteFunc(todo, func(w work) bool { // a package without tests
		_, err := os.Stat(w.program)
		return err != nil
	}), nil
}

// atATime is how many packages are always tested at a time. Up to most are while they leave processors
// idle, as many tests sleep: more would not be quicker, and tests that wait for a server's answer would
// wait too long.
const atATime, most = 2, 4

// perform does all of it.
func perform(ctx context.Context, todo []work, converter string, env []string, r *results) {
	var workers sync.WaitGroup
	var mu sync.Mutex
	running := map[string]bool{}
	finish := func(path string) {
		mu.Lock()
		defer mu.Unlock()
		delete(running, path)
	}
	isMore := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(todo) > 0
	}
	next := func() (w work, found bool) {
		mu.Lock()
		defer mu.Unlock()
		i := slices.IndexFunc(todo, func(w work) bool { return mayJoin(running, w.path) })
		if i < 0 || ctx.Err() != nil {
			return w, false
		}
		w = todo[i]
		todo = slices.Delete(todo, i, i+1)
		running[w.path] = true
		return w, true
	}
	for i := range most {
		workers.Go(func() {
			for {
				if i >= atATime {
					awaitIdle(ctx, isMore)
				}
				w, found := next()
				if !found && (i < atATime || !isMore() || ctx.Err() != nil) {
					return
				}
				if !found {
					continue // what is left must wait for what runs beside it
				}
				r.add(w.pass.name+" "+w.path, w.run(ctx, converter, env, r))
				finish(w.path)
			}
		})
	}
	workers.Wait()
}

// limit is the time after which the tests of a package do not end any more.
func limit() string {
	if testkit.Deep() {
		return "10h"
	}
	return "40m"
}

// run runs the tests as go test does and hands their events on.
func (w work) run(ctx context.Context, converter string, env []string, r *results) error {
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	argv := []string{w.program, "-test.v=test2json", "-test.paniconexit0", "-test.count=1", "-test.timeout=" + limit()}
	for i, flag := range w.pass.flags {
		if i%2 == 0 { // else its value
			flag = "-test." + strings.TrimPrefix(flag, "-")
		}
		argv = append(argv, flag)
	}
	if emulator := w.pass.kind.emulator; emulator != "" {
		argv = slices.Insert(argv, 0, emulator)
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = filepath.Join(root, strings.TrimPrefix(strings.TrimPrefix(w.path, module), "/"))
	cmd.Env = slices.Concat(os.Environ(), []string{"PWD=" + cmd.Dir}, env, w.pass.kind.env, w.pass.env)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	convert := exec.Command(converter, "-t", "-p", w.path)
	out, in, err := os.Pipe()
	if err != nil {
		return err
	}
	cmd.Stdout, cmd.Stderr, convert.Stdin = in, in, out
	events, err := convert.StdoutPipe()
	if err != nil {
		return errors.Join(err, in.Close(), out.Close())
	}
	if err = convert.Start(); err == nil {
		err = cmd.Start()
	}
	in.Close()
	out.Close()
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	began := time.Now()
	go func() {
		err := cmd.Wait()
		ended <- err
		// A process that a test has left may hold the other end.
		time.AfterFunc(5*time.Second, func() { _ = convert.Process.Kill() })
	}()
	rest := r.read(&w.pass, events)
	err = <-ended
	_ = convert.Wait()
	r.endedPackage(w, time.Since(began), processor(cmd.ProcessState)+processor(convert.ProcessState), err, rest)
	return err
}

// processor is the time of processors that a process has used, with all descendants that were waited for.
func processor(ended *os.ProcessState) time.Duration {
	return ended.UserTime() + ended.SystemTime()
}
