//go:build integration

// Package shell_test uses golock acquire, renew, release and held as scripts
// do: in dash and in bash, on a local store and on a Redis server.
package shell_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks/redis/redistest"
	"golock/test/testkit"
)

// stranger is another user.
const stranger = 12345

func TestMain(m *testing.M) { os.Exit(testkit.Main(m, 6)) }

// sandbox is one shell and one store.
type sandbox struct {
	*testkit.Sandbox
	shell string
}

func newSandbox(t testing.TB, store, shell string) *sandbox {
	t.Helper()
	return &sandbox{testkit.OnStore(t, store), testkit.Need(t, shell)}
}

// everywhere runs a test on each store, with another shell on each.
func everywhere(t *testing.T, test func(s *sandbox)) {
	testkit.Each(t, map[string]string{"local": "dash", "redis": "bash"}, func(t *testing.T, store, shell string) {
		url := ""
		if store == "redis" {
			url = redistest.StoreURL(t)
		}
		test(newSandbox(t, url, shell))
	})
}

func (s *sandbox) script(name string) *testkit.Process {
	s.T.Helper()
	path, err := filepath.Abs("testdata/" + name)
	testkit.Must(s.T, err)
	return s.Exec(s.shell, path).Begin()
}

func (s *sandbox) sh(text string) *testkit.Process {
	s.T.Helper()
	return s.Exec(s.shell, "-c", text).Begin()
}

// ends runs golock to its end, which is as demanded and without a message.
func (s *sandbox) ends(code int, args ...string) {
	s.T.Helper()
	s.Golock(args...).Run().Expect(s.T, code).Quiet(s.T)
}

// killGroup kills a shell and what it has started, but for a keeper.
func killGroup(p *testkit.Process) {
	p.T.Helper()
	_ = unix.Kill(-p.PID, unix.SIGKILL)
	p.Wait()
}

// free waits until nobody holds or waits.
func (s *sandbox) free(name string) {
	s.T.Helper()
	s.Eventually(name+" is free", func() bool { return len(s.List(name)) == 0 })
}

func TestScripts(t *testing.T) {
	everywhere(t, func(s *sandbox) {
		for _, script := range []string{"semaphore.sh", "replaced.sh"} {
			s.script(script).Expects(0).Quiet(s.T)
		}
	})
}

// acquire starts a script that acquires k for itself with a file of its own
// open, and returns the ID and the keeper.
func (s *sandbox) acquire(flags string) (script *testkit.Process, id string, keeper int) {
	s.T.Helper()
	script = s.sh(`exec 7>seven; id=$(golock acquire --name k --for $$ ` + flags + `); echo "$id"; sleep 1000; :`)
	id = strings.TrimSpace(script.Shows(".*\n"))
	if !regexp.MustCompile(`^[0-9a-f]{32}-[0-9a-f]{32}$`).MatchString(id) {
		s.T.Fatalf("printed %q", id)
	}
	return script, id, s.List("k")[0].PID
}

func (s *sandbox) ended(keeper int) {
	s.T.Helper()
	s.Eventually("the keeper is gone", func() bool { return !testkit.Alive(keeper) })
}

// The holder process (keeper) has none of the script's files, terminal or directory, and leaves no
// zombie. It ends with the script.
func TestKeeperStandsAlone(t *testing.T) {
	t.Parallel()
	everywhere(t, func(s *sandbox) {
		p, id, keeper := s.acquire("")
		proc := fmt.Sprintf("/proc/%d/", keeper)
		files, err := os.ReadDir(proc + "fd")
		testkit.Must(s.T, err)
		for _, f := range files {
			to, _ := os.Readlink(proc + "fd/" + f.Name())
			if n, _ := strconv.Atoi(f.Name()); n < 3 && to != "/dev/null" || strings.HasPrefix(to, "/dev/pts") ||
				strings.HasPrefix(to, filepath.Dir(s.Dir)) && !strings.HasPrefix(to, filepath.Dir(s.Dir)+"/store") {
				s.T.Errorf("the keeper has %s -> %s open", f.Name(), to)
			}
		}
		if cwd, _ := os.Readlink(proc + "cwd"); cwd != "/" {
			s.T.Errorf("its directory is %s", cwd)
		}
		if sid, _ := unix.Getsid(keeper); sid != keeper {
			s.T.Errorf("its session is %d", sid)
		}
		for _, child := range testkit.Children(p.PID) {
			if !testkit.Alive(child) || child == keeper {
				s.T.Errorf("the script has the child %s", testkit.Describe([]int{child}))
			}
		}
		// What a terminal sends does nothing to it.
		for _, sig := range []syscall.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGUSR1, unix.SIGWINCH} {
			s.Signal(keeper, sig)
		}
		s.ends(0, "held", "--id", id)
		killGroup(p)
		s.Lock("k", "--wait=20", "--", "true").Run().Expect(s.T, 0) // before the TTL is over
		s.ended(keeper)
	})
}

// When the keeper is killed, the slot of a local store is free, that of another after its TTL. The
// script notices only when it asks.
func TestKeeperKilled(t *testing.T) {
	everywhere(t, func(s *sandbox) {
		flags := ""
		if !s.IsLocal() {
			flags = "--ttl 5"
		}
		p, id, keeper := s.acquire(flags)
		s.Kill(keeper)
		s.free("k")
		for _, command := range [][]string{{"held", "--id", id}, {"renew", id}, {"release", id}} {
			s.Golock(command...).Run().Expect(s.T, 79)
		}
		if !p.Running() {
			s.T.Error("the script is gone")
		}
		s.ends(0, "clean", "-q")
	})
}

// On TERM, as at a shutdown, the keeper gives the slot back.
func TestKeeperTold(t *testing.T) {
	everywhere(t, func(s *sandbox) {
		_, id, keeper := s.acquire("")
		s.Signal(keeper, unix.SIGTERM)
		s.Lock("k", "--wait=20", "--", "true").Run().Expect(s.T, 0)
		s.ends(79, "held", "--id", id)
		s.ended(keeper)
	})
}

// An ID that is over, invented or of another lock changes no slot.
func TestReleaseOfWhatIsOver(t *testing.T) {
	everywhere(t, func(s *sandbox) {
		_, a, _ := s.acquire("")
		s.ends(0, "release", a)
		_, b, _ := s.acquire("")
		for _, id := range []string{a, b[:33] + a[33:], strings.Repeat("0", 32) + b[32:]} {
			s.Golock("release", id).Run().Expect(s.T, 79)
			s.Golock("renew", id).Run().Expect(s.T, 79)
			s.ends(79, "held", "--id", id)
		}
		s.ends(0, "held", "--id", b)
		s.ends(0, "renew", b)
		for _, wrong := range []string{"", "x", a + "0"} {
			s.Golock("release", wrong).Run().Expect(s.T, 64)
			s.Golock("held", "--id", wrong).Run().Expect(s.T, 64)
		}
		s.ends(0, "release", b)
	})
}

// A signal, or the end of the process that the slot was for, ends the waiting at once.
func TestWaitingEnds(t *testing.T) {
	everywhere(t, func(s *sandbox) {
		s.acquire("")
		for _, sig := range []syscall.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGKILL} {
			p := s.Golock("acquire", "--name", "k", "--for", strconv.Itoa(os.Getpid())).Begin()
			s.AwaitWaiting("k", 1)
			p.Signal(sig)
			r := p.Wait()
			if r.Signal != sig || r.Stdout+r.Stderr != "" {
				s.T.Errorf("%v: %v", sig, r)
			}
			s.AwaitWaiting("k", 0)
		}
		for _, code := range []int{75, 9} {
			client := s.Exec("sleep", "1000").Begin()
			p := s.Golock("acquire", "--name", "k", "-E", strconv.Itoa(code), "--for", strconv.Itoa(client.PID)).Begin()
			s.AwaitWaiting("k", 1)
			client.Signal(unix.SIGKILL)
			p.Wait().Complaint(s.T, code, "golock: the process that the slot was for has ended")
		}
		if list := s.List("k"); len(list) != 1 || list[0].State != "holding" {
			s.T.Errorf("the holder is gone, or somebody waits: %+v", list)
		}
	})
}

// Linux before 5.3 has no pidfds: a slot, and a place in the queue, end with their process all the
// same, and what is no process is refused.
func TestForWithoutPidfds(t *testing.T) {
	t.Parallel()
	everywhere(t, func(s *sandbox) {
		acquire := func(pid int) *testkit.Command {
			return s.Golock("acquire", "--name", "k", "--for", strconv.Itoa(pid)).
				By("strace", "-f", "-o", "/dev/null", "-e", "trace=pidfd_open", "-e", "inject=pidfd_open:error=ENOSYS")
		}
		client, other := s.Exec("sleep", "1000").Begin(), s.Exec("sleep", "1000").Begin()
		holder := acquire(client.PID).Start()
		s.ends(0, "held", "--id", holder.Line())
		waiter := acquire(other.PID).Begin()
		s.AwaitWaiting("k", 1)
		other.Signal(unix.SIGKILL)
		waiter.Expects(75, "golock: the process that the slot was for has ended")
		client.Signal(unix.SIGKILL)
		holder.Expects(0) // strace ends with the holder process
		s.free("k")
		acquire(1<<22).Run().Expect(s.T, 64, "there is no process")
	})
}

// With --for none the slot lasts for its TTL, and renew prolongs it by as much.
// Slow: TTLs that a busy machine does not miss.
func TestForNone(t *testing.T) {
	t.Parallel()
	s := newSandbox(t, redistest.StoreURL(t), "sh")
	s.sh(`set -eu
id=$(golock acquire --name n --for none --ttl 60)
golock renew "$id"; golock held --id "$id"; golock release "$id"
golock release "$id" 2>/dev/null && exit 1 || [ $? -eq 79 ]
id=$(golock acquire --name n --for none --ttl 10)
sleep 5; golock renew "$id"; sleep 6; golock renew "$id"
golock ls n | grep -q holding
until [ -z "$(golock ls n 2>/dev/null)" ]; do sleep 0.1; done
golock renew "$id" 2>/dev/null && exit 1 || [ $? -eq 79 ]
golock held --id "$id" && exit 1 || [ $? -eq 79 ]`).Expects(0).Quiet(t)
}

// Scripts are killed at random moments, with their golocks or alone: never have two the same slot
// number, none loses its slot, and at the end nothing is left.
func TestScriptsAreKilled(t *testing.T) {
	everywhere(t, func(s *sandbox) {
		var all sync.WaitGroup
		for seed := range uint64(4) {
			all.Go(func() {
				random := rand.New(rand.NewPCG(seed, 0))
				for range 5 {
					p := s.script("judged.sh")
					p.Shows("in\n")
					time.Sleep(time.Duration(random.IntN(60)) * time.Millisecond)
					if random.IntN(2) == 0 {
						p.Signal(syscall.SIGKILL) // the shell alone
					}
					killGroup(p)
				}
			})
		}
		all.Wait()
		s.free("judged")
		if b, _ := os.ReadFile(s.Path("violations")); len(b) > 0 {
			s.T.Errorf("%s", b)
		}
		if lines := strings.Count(s.All(), "judged.sh"); lines > 0 {
			s.T.Errorf("still running: %s", s.All())
		}
	})
}
