package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"golock/test/testkit"
)

// pass is one go test. They run one after the other.
type pass struct {
	name     string
	flags    []string
	packages func(path string) bool
	env      []string
}

// Tests that try everything, one after the other: the race detector would find nothing, slowly.
const exhaustive = "^TestEvery(Schedule|PathOfALease)$"

// The conformance suite has two parts. In the histories, goroutines of the test share the engine's
// state: the race detector watches them. All else is asked of processes, which are the test binary
// again. With the race detector each takes twice as much time to start and has less to find.
// The suite is run for the engine, or for several schemes of it.
const (
	histories = "^TestConformance$/^Histories$|^TestConformance$/^[a-z]/^Histories$"
	processes = "^TestConformance$/^([A-GI-Z]|Ho)|^TestConformance$/^[a-z]/^([A-GI-Z]|Ho)"
)

// passes are all of make test. The race detector watches what is linked into
// the test; suites that start the program have no use for it.
var passes = []pass{
	{name: "race", flags: []string{"-race", "-tags", "integration", "-skip", exhaustive + "|" + processes}, packages: isUnit},
	// The program itself: some that wait, hold, report and end in each way.
	{name: "race, program", flags: []string{"-tags", "integration", "-run", "^TestScripts$/^(policy|queue|report)$"},
		packages: are("cli"), env: []string{testkit.RaceVariable + "=1", testkit.BinaryVariable + "="}},
	{name: "processes", flags: []string{"-tags", "integration", "-run", exhaustive + "|^TestConformance$", "-skip", histories},
		packages: are("runner locks/files locks/local locks/open locks/redis locks/sql")},
	{name: "black box", flags: []string{"-tags", "integration"}, packages: isSuite},
	{name: "matrix on redis", flags: []string{"-tags", "integration"}, packages: are("test/matrix"), env: []string{"LOCKTEST_STORE=redis"}},
	// What golock itself does is the same as on Redis; leaving the queue of a database is not.
	{name: "matrix on mariadb", flags: []string{"-tags", "integration", "-run", "Waiting|Instants"},
		packages: are("test/matrix"), env: []string{"LOCKTEST_STORE=mariadb"}},
	{name: "portable", flags: []string{"-tags", "portable"}, packages: are("signals")},
	bits32,
}

// bits32 is without the tests that try everything, which need minutes and have no large numbers.
var bits32 = pass{
	name: "32 bits", flags: []string{"-skip", exhaustive},
	packages: isUnit, env: []string{"GOARCH=386"},
}

// emulated is bits32 where the kernel runs no 32-bit programs: as ARM, in an emulator, which has
// neither processes that start each other nor all of /proc. Of the two emulators Go runs in that of ARM
// only. TestDist makes programs for the same ARM.
var emulated = pass{
	name: "32 bits, emulated", flags: []string{"-exec", "qemu-arm-static"},
	packages: are("locks locks/queue locks/network locks/sql runner/renewal config cli/term"),
	env:      []string{"GOARCH=arm", "GOARM=6"},
}

const module = "golock"

// are names packages.
func are(paths string) func(string) bool {
	return func(path string) bool {
		return slices.Contains(strings.Fields(paths), strings.TrimPrefix(path, module+"/"))
	}
}

func isSuite(path string) bool { return strings.HasPrefix(path, module+"/test/") }

func isUnit(path string) bool { return !isSuite(path) }

// run runs the pass to its end.
func (p *pass) run(ctx context.Context, variables []string, r *results) error {
	list, err := exec.CommandContext(ctx, "go", "list", "-tags", "integration", "./...").Output()
	if err != nil {
		return fmt.Errorf("go list: %w", err)
	}
	packages := slices.DeleteFunc(strings.Fields(string(list)), func(path string) bool { return !p.packages(path) })
	// make lint vets all packages, and what they import only once.
	args := slices.Concat([]string{"test", "-json", "-count=1", "-p", "2", "-vet=off", "-timeout", "20m", "-trimpath"}, p.flags, packages)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = slices.Concat(os.Environ(), variables, p.env)
	if !slices.Contains(p.flags, "-race") { // compiled as the programs are, packages are compiled once for both
		cmd.Env = append(cmd.Env, "CGO_ENABLED=0")
	}
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	events, out, err := os.Pipe()
	if err != nil {
		return err
	}
	defer events.Close()
	cmd.Stdout = out
	err = cmd.Start()
	out.Close()
	if err != nil {
		return err
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		r.read(p, events)
	}()
	err = cmd.Wait()
	// A process that a test has left may hold the other end.
	_ = events.SetReadDeadline(time.Now().Add(5 * time.Second))
	<-read
	return err
}

// where gives the pass, or what stands for it on this machine.
func (p pass) where() (pass, error) {
	if p.name != bits32.name {
		return p, nil
	}
	runs, err := testkit.Runs386()
	if err == nil && !runs {
		p = emulated
	}
	return p, err
}

// replay is the command that runs a test of the pass again.
func (p *pass) replay(path, test string) string {
	words := slices.Concat(p.env, []string{"go", "test", "-count=1"})
	for _, flag := range p.flags {
		if strings.ContainsAny(flag, "(|") {
			flag = "'" + flag + "'"
		}
		words = append(words, flag)
	}
	if test != "" {
		parts := strings.Split(test, "/")
		for i, part := range parts {
			parts[i] = "^" + part + "$"
		}
		words = append(words, "-run", "'"+strings.Join(parts, "/")+"'")
	}
	return strings.Join(append(words, "."+strings.TrimPrefix(path, module)), " ")
}
