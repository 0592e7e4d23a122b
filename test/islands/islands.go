// Package islands makes hosts for tests: network namespaces that a bridge joins. An island can be cut off
// from the others. Then no packet gets through, and no connection is reset.
package islands

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"golock/locks/locktest/server"
	"golock/test/testkit"
)

// insideVariable is set in a process that has namespaces of its own.
const insideVariable = "LOCKTEST_ISOLATED"

// Isolate executes this program again with mounts and a network of its own, so that no other process can take
// the port of a server that is down for a moment. inside reports that this process is already isolated.
// Without root Isolate does nothing.
func Isolate() (inside bool, err error) {
	inside = os.Getenv(insideVariable) != ""
	switch {
	case !inside && os.Geteuid() != 0:
		return false, nil
	case !inside:
		runtime.LockOSThread() // the new namespaces belong to this thread
		if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_NEWNET); err != nil {
			return false, fmt.Errorf("namespaces: %w", err)
		}
		return false, syscall.Exec("/proc/self/exe", os.Args, append(os.Environ(), insideVariable+"=1"))
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return true, fmt.Errorf("making mounts private: %w", err)
	}
	if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		return true, fmt.Errorf("loopback: %w: %s", err, out)
	}
	return true, nil
}

// Network is a number of islands that a bridge joins. The test process is on the bridge too, so it reaches them.
type Network []*Island

// Island is a host.
type Island struct {
	server.Site

	device string // the network device of the island at the bridge
}

// networks is the number of networks that this process has made.
var networks atomic.Int64

// New makes a network of islands. The test process must be isolated (Isolate).
func New(t testing.TB, size int) Network {
	t.Helper()
	testkit.NeedRoot(t)
	number := networks.Add(1)
	bridge := fmt.Sprintf("bridge%d", number)
	addr := func(host int) string { return fmt.Sprintf("10.77.%d.%d", number, host) }
	ip := func(args string, by ...string) {
		testkit.Output(t, "", append(append(by, "ip"), strings.Fields(args)...)...)
	}
	ip("link add " + bridge + " type bridge")
	t.Cleanup(func() { ip("link del " + bridge) })
	ip("addr add " + addr(254) + "/24 dev " + bridge)
	ip("link set " + bridge + " up")
	var n Network
	for i := range size {
		one := &Island{device: fmt.Sprintf("host%d.%d", number, i)}
		one.Host, one.Namespace = addr(i+1), newNamespace(t)
		ip("link add " + one.device + " type veth peer name eth0 netns " + one.Namespace)
		t.Cleanup(func() { ip("link del " + one.device) })
		ip("link set " + one.device + " master " + bridge + " up")
		for _, line := range []string{"link set lo up", "addr add " + one.Host + "/24 dev eth0", "link set eth0 up"} {
			ip(line, one.Enter()...)
		}
		n = append(n, one)
	}
	return n
}

// newNamespace makes a network namespace and returns the path of its file. The namespace lasts until the test
// and all processes in the namespace have ended.
func newNamespace(t testing.TB) string {
	t.Helper()
	type result struct {
		f   *os.File
		err error
	}
	made := make(chan result)
	go func() {
		runtime.LockOSThread() // the thread ends with this goroutine
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err != nil {
			made <- result{err: err}
			return
		}
		f, err := os.Open("/proc/thread-self/ns/net")
		made <- result{f, err}
	}()
	r := <-made
	testkit.Must(t, r.err)
	t.Cleanup(func() { r.f.Close() })
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), r.f.Fd())
}

// Enter returns a command line that runs argv on the island.
func (i *Island) Enter(argv ...string) []string {
	return append([]string{"nsenter", "--net=" + i.Namespace, "--"}, argv...)
}

// Cut cuts the island off, or joins it to the others again.
func (i *Island) Cut(off bool) error {
	state := "up"
	if off {
		state = "down"
	}
	out, err := exec.Command("ip", "link", "set", i.device, state).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s is not %s: %w: %s", i.device, state, err, out)
	}
	return err
}

// Sites returns where servers on the given islands run.
func (n Network) Sites(islands ...int) (sites []server.Site) {
	for _, i := range islands {
		sites = append(sites, n[i].Site)
	}
	return sites
}
