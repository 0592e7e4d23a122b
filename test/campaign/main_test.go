//go:build integration

// Package campaign_test attacks every store with random schedules of faults,
// for as long as it is told to, and judges what came of it.
//
// Golocks are started by several driver processes, as by several hosts. Their
// commands tell a recorder of their lives by a socket that golock knows nothing of; who
// was alive together is what the kernel says, by locks on bytes of a file. A judge,
// which sees only that, looks for promises that were broken. What is not
// promised happens here, too, and is counted apart.
//
// All that is chosen at random in a round follows from the round's seed, which
// a failure prints with the command that plays it again. docs/reliability.md is
// written by this package: make campaign.
//
// LOCKTEST_CAMPAIGN=10m is for how long each store is attacked, with random rounds;
// LOCKTEST_SEED is their seed. Without it the same few rounds are played every time.
// LOCKTEST_STORE is the only store, LOCKTEST_ROUND the seed of the only round. LOCKTEST_RECORDS=DIR writes there
// what happened in a round with a violation; LOCKTEST_BINARY=FILE is another
// golock to be tried.
package campaign_test

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks/sql/sqltest"
)

var (
	golock, member string // programs
	seed           uint64
	onlyRound      uint64
	duration       time.Duration // of a store's attack; 0: the short form
	mayMount       bool          // in a mount namespace of our own
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == driverArg {
		os.Exit(driverMain())
	}
	flag.Parse()
	parallel := 5 // most of the time they wait
	if os.Getenv("LOCKTEST_CAMPAIGN") == "" {
		parallel = len(engines)
	}
	_ = flag.Set("test.parallel", strconv.Itoa(max(parallel, runtime.GOMAXPROCS(0))))
	code, err := setUp(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

const insideVariable = "LOCKTEST_CAMPAIGN_INSIDE" // namespaces of our own

func setUp(m *testing.M) (code int, err error) {
	if os.Geteuid() == 0 && os.Getenv(insideVariable) == "" {
		return inside()
	}
	mayMount = os.Getenv(insideVariable) != ""
	if mayMount {
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return 1, fmt.Errorf("making mounts private: %w", err)
		}
		if err := loopbackUp(); err != nil {
			return 1, fmt.Errorf("loopback: %w", err)
		}
		// The disk is not what is tried: servers write as safely, and faster.
		temporary, err := os.MkdirTemp("", "golock-campaign-")
		if err != nil {
			return 1, err
		}
		defer os.Remove(temporary)
		if err := unix.Mount("tmpfs", temporary, "tmpfs", 0, "size=2g,mode=1777"); err != nil {
			return 1, fmt.Errorf("tmpfs: %w", err)
		}
		defer unix.Unmount(temporary, unix.MNT_DETACH)
		os.Setenv("TMPDIR", temporary)
	}
	seed = uint64(time.Now().UnixNano())
	for name, to := range map[string]*uint64{"LOCKTEST_SEED": &seed, "LOCKTEST_ROUND": &onlyRound} {
		if text := os.Getenv(name); text != "" {
			if *to, err = strconv.ParseUint(text, 0, 64); err != nil {
				return 1, fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	if text := os.Getenv("LOCKTEST_CAMPAIGN"); text != "" {
		if duration, err = time.ParseDuration(text); err != nil {
			return 1, fmt.Errorf("LOCKTEST_CAMPAIGN: %w", err)
		}
	}
	dir, err := os.MkdirTemp("", "golock-campaign-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	golock, member = filepath.Join(dir, "golock"), filepath.Join(dir, "member")
	if built := os.Getenv("LOCKTEST_BINARY"); built != "" { // another program under test
		golock = built
	} else {
		build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w -E golock/internal/entry.start", "-o", golock, ".")
		build.Dir = filepath.Join("..", "..")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			return 1, fmt.Errorf("building golock: %w\n%s", err, out)
		}
	}
	cc := exec.Command("gcc", "-O2", "-Wall", "-Werror", "-static", "-o", member, filepath.Join("testdata", "member.c"))
	if out, err := cc.CombinedOutput(); err != nil {
		return 1, fmt.Errorf("building the command (run .ci/deps): %w\n%s", err, out)
	}
	return sqltest.Main(m), nil
}

func loopbackUp() error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, lo)
}

// inside runs all of it again where mounts are nobody else's, and no port of a server
// that is away for a moment.
func inside() (code int, err error) {
	runtime.LockOSThread() // with which the other process ends
	self := exec.Command("/proc/self/exe", os.Args[1:]...)
	self.Env = append(os.Environ(), insideVariable+"=1")
	self.Stdin, self.Stdout, self.Stderr = os.Stdin, os.Stdout, os.Stderr
	self.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if err := self.Run(); err != nil {
		if self.ProcessState != nil {
			return max(self.ProcessState.ExitCode(), 1), nil
		}
		return 1, fmt.Errorf("in namespaces of its own: %w", err)
	}
	return 0, nil
}

// environment is the caller's without golock's variables.
func environment() []string {
	var env []string
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "GOLOCK_") && !strings.HasPrefix(e, "LD_PRELOAD=") && !strings.HasPrefix(e, "CLOCK_SHIFT_FILE=") { // of a server that starts
			env = append(env, e)
		}
	}
	return env
}
