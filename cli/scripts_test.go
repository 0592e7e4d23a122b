package cli

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"golock/signals"
	"golock/test/testkit"
)

// TestMain runs the scripts in testdata with a golock that was built like a release.
func TestMain(m *testing.M) { os.Exit(testkit.Main(m, 8)) } // 8 at once, because scripts mostly wait

func TestScripts(t *testing.T) { runScripts(t, "../testdata") }

func runScripts(t *testing.T, dir string) {
	testscript.Run(t, testscript.Params{
		Dir:                 dir,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			home := filepath.Join(env.WorkDir, "home")
			env.Setenv("PATH", filepath.Dir(testkit.Golock)+string(filepath.ListSeparator)+env.Getenv("PATH"))
			env.Setenv("HOME", home)
			env.Setenv("STORE", "local://"+filepath.Join(env.WorkDir, "store"))
			store := filepath.Join(env.WorkDir, "store") // golock says when it has to make it
			return errors.Join(os.Mkdir(home, 0o755), os.Mkdir(store, 0o700), os.CopyFS(env.WorkDir, os.DirFS("../testdata/lib")))
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"exits": exits,
			"await": await,
			"json":  jsonValues,
		},
	})
}

// exits CODE|SIGNAL COMMAND [ARG...] runs a command and demands its exit code, or that it dies
// of the signal. What it printed is there for the commands after it.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE|SIGNAL COMMAND [ARG...]")
	}
	got := "0"
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		exit, ok := err.(*exec.ExitError)
		if !ok {
			ts.Fatalf("%v", err)
		}
		got = strconv.Itoa(exit.ExitCode())
		if status := exit.Sys().(syscall.WaitStatus); status.Signaled() {
			got = signals.Name(status.Signal())
		}
	}
	if got != args[0] {
		ts.Fatalf("ended with %s, want %s", got, args[0])
	}
}

// await FILE waits until the file is there.
func await(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: await FILE")
	}
	file := ts.MkAbs(args[0])
	there := func() bool {
		_, err := os.Stat(file)
		return err == nil
	}
	if !testkit.Within(testkit.Patience, there) {
		ts.Fatalf("%s did not appear", args[0])
	}
}
