//go:build integration

package campaign_test

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"golock/locks/redis/redistest"
	"golock/test/testkit"
)

// A network is hosts with network namespaces of their own, and a bridge that joins them to each
// other and to the tests. A host can be cut off: then nothing gets through, and nobody is told.

type network []*island

type island struct {
	file   string // of the namespace
	addr   string
	device string // its end at the bridge
}

// networks counts those of this process.
var networks atomic.Int64

// newNetwork needs the namespaces of the tests (setUp), in which nobody else's devices are.
func newNetwork(t *testing.T, size int) network {
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
	var n network
	for i := range size {
		one := &island{file: newNamespace(t), addr: addr(i + 1), device: fmt.Sprintf("host%d.%d", number, i)}
		ip("link add " + one.device + " type veth peer name eth0 netns " + one.file)
		t.Cleanup(func() { ip("link del " + one.device) })
		ip("link set " + one.device + " master " + bridge + " up")
		for _, line := range []string{"link set lo up", "addr add " + one.addr + "/24 dev eth0", "link set eth0 up"} {
			ip(line, one.enter()...)
		}
		n = append(n, one)
	}
	return n
}

// newNamespace gives the file of a network namespace, which lasts as long as the test or what runs
// in it.
func newNamespace(t *testing.T) string {
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

// enter is a command line that runs another one in the island.
func (i *island) enter(argv ...string) []string {
	return append([]string{"nsenter", "--net=" + i.file, "--"}, argv...)
}

// cut cuts the island off, or joins it to the others again.
func (i *island) cut(off bool) error {
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

func (i *island) site() redistest.Site { return redistest.Site{Host: i.addr, Namespace: i.file} }

func (n network) sites(islands ...int) (sites []redistest.Site) {
	for _, i := range islands {
		sites = append(sites, n[i].site())
	}
	return sites
}
