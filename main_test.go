package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"golock/check"
	"golock/runner"
)

// The program as its users see it: every script in testdata runs the real main
// as a process of its own.
func TestMain(m *testing.M) {
	if os.Args[0] == runner.GuardName { // what a run on a store with leases starts
		main()
	}
	if len(os.Args) > 1 && os.Args[1] == check.ChildName { // what golock check has its runs start
		main()
	}
	testscript.Main(m, map[string]func(){"golock": main, keeperName: main})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			home := filepath.Join(env.WorkDir, "home")
			env.Setenv("HOME", home)
			env.Setenv("STORE", "local://"+filepath.Join(env.WorkDir, "store"))
			return os.Mkdir(home, 0o755)
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"exits": exits,
			"await": await,
			"json":  jsonValues,
		},
	})
}

// exits CODE COMMAND [ARG...] runs a command and demands its exit code. What it
// printed is there for the commands after it.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND [ARG...]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		exit, ok := err.(*exec.ExitError)
		if !ok {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// patience bounds every wait for something that must happen.
const patienceForTests = 10 * time.Second

// await FILE waits until the file is there.
func await(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: await FILE")
	}
	file := ts.MkAbs(args[0])
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for until := time.Now().Add(patienceForTests); ; <-tick.C {
		if _, err := os.Stat(file); err == nil {
			return
		}
		if time.Now().After(until) {
			ts.Fatalf("%s did not appear", args[0])
		}
	}
}
