// Package testkit is what the black-box suites share: the program under test,
// sandboxes to start it in, processes to watch, and waits that end as soon as
// the awaited state is there.
//
// A run of all tests (test/run) builds the program once and names it in
// LOCKTEST_BINARY. A package that is tested alone builds it in Main.
package testkit

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"golock/locks/locktest/server"
)

// BinaryVariable names a golock that is tested instead of one built here.
const BinaryVariable = "LOCKTEST_BINARY"

// RaceVariable makes Main build golock with the race detector, if it is set.
const RaceVariable = "LOCKTEST_RACE"

// Golock is the path of the program under test, which every user may execute.
// Main sets it.
var Golock string

// Main builds the program and runs the tests of a package, n at a time, because they mostly wait.
// It is called as in os.Exit(testkit.Main(m, 8)). What prepare makes in a directory, and the
// servers that the tests share, exist until the tests have ended.
func Main(m interface{ Run() int }, parallel int, prepare ...func(dir string) error) int {
	code, err := run(m, parallel, prepare)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func run(m interface{ Run() int }, parallel int, prepare []func(dir string) error) (code int, err error) {
	defer server.Close()
	Parallel(parallel)
	SetDefaults()
	dir, err := os.MkdirTemp("", "golock-bin-")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	if Golock = os.Getenv(BinaryVariable); Golock == "" {
		Golock = filepath.Join(dir, "golock")
		how := Build
		if os.Getenv(RaceVariable) != "" {
			how = buildRace
		}
		if err := how(Golock); err != nil {
			return 1, err
		}
	}
	for _, f := range prepare {
		if err := f(dir); err != nil {
			return 1, err
		}
	}
	// No setting of the caller reaches the program but what a test sets.
	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		if strings.HasPrefix(name, "GOLOCK_") {
			os.Unsetenv(name)
		}
	}
	return m.Run(), nil
}

// Library runs the tests of a package that does not start golock: many at a time, because they mostly
// wait. Goroutines that are left at the end are a failure.
func Library(m interface{ Run() int }) int {
	SetDefaults()
	if f := flag.Lookup("rapid.checks"); f != nil && f.Value.String() == "100" && !Campaign() {
		_ = f.Value.Set("10") // on real stores
	}
	Parallel(max(8, runtime.GOMAXPROCS(0)))
	code := m.Run()
	server.Close()
	var leak error
	// A waiter that gave up may be leaving its store for 2 s.
	if code == 0 && !Within(10*time.Second, func() bool { leak = goleak.Find(); return leak == nil }) {
		fmt.Fprintln(os.Stderr, leak)
		return 1
	}
	return code
}

// SetDefaults gives what tests start the same surroundings everywhere.
func SetDefaults() {
	// nohup ignores HUP, a shell without job control INT and QUIT. A signal that
	// is caught here has its default action in what is started from here.
	for _, sig := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT} {
		if signal.Ignored(sig) {
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
	// make(1) starts its children by the C library's posix_spawn(3), which leaves signal 32 ignored.
	const ofLibrary, setSize = 32, 8
	var defaultAction [16]uintptr
	_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, ofLibrary, uintptr(unsafe.Pointer(&defaultAction)), 0, setSize, 0, 0)
	FixRapid()
	// Commands that die of QUIT or ABRT leave no core files.
	var core unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &core); err == nil {
		core.Cur = 0
		_ = unix.Setrlimit(unix.RLIMIT_CORE, &core)
	}
}

// Campaign reports whether this is a long run, with random seeds and more rounds.
func Campaign() bool {
	return os.Getenv("LOCKTEST_CAMPAIGN") != "" || os.Getenv("LOCKTEST_HISTORIES") != ""
}

// Build builds the program as a release is built.
func Build(path string) error { return build(path, "", "") }

// PairVariable names the lean program of a pair that is there instead of one built here.
const PairVariable = "LOCKTEST_LEAN"

// BuildPair builds what packages install: a lean program, and beside it the full one, which the lean one
// becomes where it needs it. It returns the path of the lean one. Tests change neither.
func BuildPair(dir string) (lean string, err error) {
	if lean = os.Getenv(PairVariable); lean != "" {
		return lean, nil
	}
	const version = "test"
	lean = filepath.Join(dir, "lean-"+version)
	if err := build(lean, "lean", version); err != nil {
		return "", err
	}
	return lean, build(filepath.Join(dir, "golock-"+version), "", version)
}

func build(path, tags, version string) error {
	root, err := Root()
	if err != nil {
		return err
	}
	flags := "-s -w -E golock/internal/entry.start"
	if version != "" {
		flags += " -X golock/cli.version=" + version
	}
	build := exec.Command("go", "build", "-trimpath", "-tags", tags, "-ldflags", flags, "-o", path, ".")
	build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building golock: %w\n%s", err, out)
	}
	return nil
}

// buildRace builds a golock with the race detector, of the packages that tests with the race detector
// are compiled with (-trimpath). It begins in Go's entry code, not in golock's.
func buildRace(path string) error {
	root, err := Root()
	if err != nil {
		return err
	}
	build := exec.Command("go", "build", "-race", "-trimpath", "-o", path, ".")
	build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=1")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building golock with the race detector: %w\n%s", err, out)
	}
	return nil
}

// BuildC compiles a C program, static where that is possible: it starts faster.
func BuildC(source, path string) error {
	var out []byte
	var err error
	for _, how := range []string{"-static", "-fPIE"} {
		cc := exec.Command("gcc", "-O2", "-Wall", "-Werror", how, "-o", path, source)
		if out, err = cc.CombinedOutput(); err == nil {
			return nil
		}
	}
	return fmt.Errorf("building %s (make deps installs gcc): %w\n%s", source, err, out)
}

// Runs386 reports whether this kernel runs 32-bit programs.
func Runs386() (bool, error) {
	dir, err := os.MkdirTemp("", "program32-")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "program")
	syscall.ForkLock.RLock() // no process that is forked meanwhile holds it open for writing (ETXTBSY)
	err = os.WriteFile(program, []byte(program32), 0o755)
	syscall.ForkLock.RUnlock()
	if err != nil {
		return false, err
	}
	err = exec.Command(program).Run()
	if errors.Is(err, syscall.ENOEXEC) {
		return false, nil
	}
	return err == nil, err
}

// program32 is a whole program, which ends with 0. (.ci/deps has it too.)
const program32 = "\x7fELF\x01\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\x03\x00\x01\x00\x00\x00T\x80\x04\x084\x00\x00\x00" +
	"\x00\x00\x00\x00\x00\x00\x00\x004\x00\x20\x00\x01\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x80\x04\x08\x00\x80\x04\x08" +
	"\x60\x00\x00\x00\x60\x00\x00\x00\x05\x00\x00\x00\x00\x10\x00\x00\xb8\x01\x00\x00\x001\xdb\xcd\x80"

// Root is the directory of the module.
func Root() (string, error) {
	dir, err := os.Getwd()
	for ; err == nil && dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
	}
	return "", fmt.Errorf("no go.mod above the working directory: %w", err)
}

// Parallel lets n tests of a package run at a time, because most of them wait. On a machine that
// starts processes slowly fewer run: a server that has to start many for its clients would not
// answer in time.
func Parallel(n int) {
	flag.Parse()
	n /= 1 + Slowness()
	_ = flag.Set("test.parallel", strconv.Itoa(max(n, 2)))
}

// Slowness grows with the time that this machine takes to start a process; it is 0 where that is short.
func Slowness() int {
	const slow = 2 * time.Millisecond
	return int(TimeOfStart() / slow)
}

// Slowed is an amount of work, in time of a processor, on this machine: as much more as it takes longer
// to start a process. Work that grows with the square of thousands of things is more anywhere.
func Slowed(work time.Duration) time.Duration { return work * time.Duration(1+Slowness()) }

// startVariable has what TimeOfStart has measured.
const startVariable = "LOCKTEST_START"

// TimeOfStart is how long this machine takes to start a process at best. It is measured once: all that
// this process starts finds it in the environment, which are test binaries too, again and again.
func TimeOfStart() time.Duration {
	if known, err := time.ParseDuration(os.Getenv(startVariable)); err == nil {
		return known
	}
	fastest := time.Hour
	for range 20 {
		began := time.Now()
		_ = exec.Command("true").Run()
		fastest = min(fastest, time.Since(began))
	}
	_ = os.Setenv(startVariable, fastest.String())
	return fastest
}

// Need fails the test if a program that it uses is not installed.
func Need(t testing.TB, program string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		t.Fatalf("%v; make deps installs it", err)
	}
	return path
}

// Patience bounds every wait for something that must happen. It is no measure
// of speed: only a hang or a lost event uses it up, also on a busy machine.
const Patience = 60 * time.Second

// Eventually returns as soon as ok reports true and fails the test if it never
// does.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	if !Within(Patience, ok) {
		t.Fatalf("not in %v: %s", Patience, what)
	}
}

// Within reports whether ok became true before d was over. It asks ever less often, and is asking for a
// third of the time at most: some ask by starting a program, which slows down what they wait for.
func Within(d time.Duration, ok func() bool) bool {
	for began := time.Now(); ; {
		asked := time.Now()
		if ok() {
			return true
		}
		waited, answered := time.Since(began), time.Since(asked)
		if waited > d {
			return ok()
		}
		pause := min(max(waited/8, 200*time.Microsecond), 100*time.Millisecond)
		time.Sleep(max(pause, min(2*answered, 500*time.Millisecond)))
	}
}

// Each runs a test with each of several things, all at the same time.
func Each[T any](t *testing.T, things map[string]T, test func(t *testing.T, name string, one T)) {
	for name, one := range things {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, name, one)
		})
	}
}

// Lasted fails the test unless the time since began is between least and most.
func Lasted(t testing.TB, began time.Time, least, most time.Duration) {
	t.Helper()
	if took := time.Since(began); took < least || took > most {
		t.Errorf("took %v, want %v to %v", took, least, most)
	}
}

// Must fails the test if there is an error.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// NeedRoot says what is missing where it is: some tests make other users, mounts and devices.
func NeedRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test must run as root")
	}
}

// ProtectRegular turns on that O_CREAT fails for other users' files in a directory with the sticky
// bit (proc(5), fs.protected_regular) where the test may, and puts it back. What is pinned holds with
// and without.
func ProtectRegular(t testing.TB) {
	t.Helper()
	const setting = "/proc/sys/fs/protected_regular"
	was, err := os.ReadFile(setting)
	Must(t, err)
	if os.WriteFile(setting, []byte("2"), 0) == nil {
		t.Cleanup(func() { Must(t, os.WriteFile(setting, was[:1], 0)) })
	}
}

// Format compares what is stored with the sample of its format's number: golocks of two
// versions that use one store know each other by that number alone.
func Format(t testing.TB, number any, text string) {
	t.Helper()
	path := fmt.Sprintf("testdata/format-%v", number)
	if sample, err := os.ReadFile(path); err != nil || string(sample) != text {
		t.Errorf("what is stored is not %s (%v). What has changed needs a new number and a new sample:\n%s", path, err, text)
	}
}
