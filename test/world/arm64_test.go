//go:build world

package world_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"golock/test/testkit"
)

// TestARM64 runs golock for arm64 in qemu-user: the assembly of signals and internal/entry. qemu-user lacks system
// calls that a store with leases needs, so the store is local.
func TestARM64(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "golock")
	build := exec.Command("go", "build", "-tags", "lean", "-ldflags", "-E golock/internal/entry.start",
		"-o", program, "golock")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOARCH=arm64")
	out, err := build.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	emulator := testkit.Need(t, "qemu-aarch64-static")
	// golock returns a command that runs script under golock.
	golock := func(script string) *exec.Cmd {
		return exec.Command(emulator, program, "run", "--store", "local://"+dir, "--name", "job", "--", "sh", "-c", script)
	}
	for _, code := range []int{0, 1, 7, 255} {
		c := golock(fmt.Sprint("exit ", code))
		_ = c.Run()
		if got := c.ProcessState.ExitCode(); got != code {
			t.Errorf("the command exits with %d, golock with %d", code, got)
		}
	}
	for number := syscall.Signal(1); number <= 64; number++ {
		switch number {
		case unix.SIGKILL, unix.SIGSTOP, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU, unix.SIGCONT, unix.SIGCHLD,
			unix.SIGPIPE, unix.SIGURG, unix.SIGPROF, 32, 33, 34:
			// They cannot be caught, or have a meaning of their own, or docs/reference.md says that they are not passed on.
		case unix.SIGILL, unix.SIGTRAP, unix.SIGBUS, unix.SIGFPE, unix.SIGSEGV, unix.SIGSYS:
			ends(t, golock, number, "", 70) // golock takes it for a fault
		default:
			ends(t, golock, number, "caught", 5)
		}
	}
	inherits(t, golock)
}

// ends sends golock a signal. It checks what the command says that traps it, and the exit code of golock.
func ends(t *testing.T, golock func(script string) *exec.Cmd, number syscall.Signal, word string, code int) {
	t.Helper()
	c := golock(fmt.Sprintf("trap 'echo caught; exit 5' %d; echo ready; while :; do sleep 0.1; done", number))
	out, err := c.StdoutPipe()
	testkit.Must(t, err)
	testkit.Must(t, c.Start())
	lines := bufio.NewScanner(out)
	lines.Scan()
	_ = c.Process.Signal(number)
	lines.Scan()
	said := lines.Text()
	_ = c.Wait()
	if said != word || c.ProcessState.ExitCode() != code {
		t.Errorf("signal %d: the command says %q, golock: %v; want %q and %d", number, said, c.ProcessState, word, code)
	}
}

// inherits checks that a command has the ignored and blocked signals that golock was started with.
func inherits(t *testing.T, golock func(script string) *exec.Cmd) {
	t.Helper()
	c := golock("grep -E '^Sig(Ign|Blk)' /proc/self/status")
	argv := append([]string{"-c", `trap '' USR1 HUP; exec "$@"`, "sh"}, c.Args...)
	out, err := exec.Command("sh", argv...).CombinedOutput()
	testkit.Must(t, err)
	want := fmt.Sprintf("%016x", 1<<(unix.SIGUSR1-1)|1<<(unix.SIGHUP-1))
	if !strings.Contains(string(out), "SigIgn:\t"+want) {
		t.Errorf("HUP and USR1 are ignored, the command has: %s", out)
	}
}
