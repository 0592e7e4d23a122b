//go:build cluster

package cluster_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"golock/test/islands"
	"golock/test/testkit"
)

// The load: on each host golocks that take turns on one lock, some on locks that nobody uses, and one that
// holds a lock of its own all the time; and a queue of waiters of all hosts behind the holder of host 0.

// member is the command of all golocks: it locks a file, tells the recorder whether it is alone, and ends
// when its time is over.
func member() int {
	argv := strings.Fields(os.Getenv(memberVariable)) // recorder, file, token, milliseconds
	c, err := net.Dial("unix", argv[0])
	if err != nil {
		return 3
	}
	file, err := os.OpenFile(argv[1], os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return 4
	}
	word := "alone"
	if unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		word = "beside"
	}
	fmt.Fprintln(c, argv[2], word)
	lasts, _ := strconv.Atoi(argv[3])
	if lasts == 0 {
		_, _ = io.Copy(io.Discard, c) // until the recorder ends it
	}
	time.Sleep(time.Duration(lasts) * time.Millisecond) // the work
	return 0
}

// memberVariable makes the test binary a member.
const memberVariable = "LOCKTEST_MEMBER"

// life is the time of a command. Its end is what the kernel has said.
type life struct {
	token    string
	isAlone  bool
	from, to time.Time
}

type load struct {
	t       *testing.T
	network islands.Network
	system  system
	dir     string
	socket  net.Listener
	holders []*golock
	queue   []*golock
	turns   sync.WaitGroup
	ends    chan struct{}

	mu    sync.Mutex
	lives []*life
	conns map[string]net.Conn // of the holders
	lost  int
}

// golock is one that has ended, or is to end when it is told.
type golock struct {
	host   int
	token  string
	code   int
	stderr string
	done   chan struct{}
}

func newLoad(t *testing.T, n islands.Network, s system) *load {
	dir, err := os.MkdirTemp("", "cluster-")
	testkit.Must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	l := &load{t: t, network: n, system: s, dir: dir, ends: make(chan struct{}), conns: map[string]net.Conn{}}
	l.socket, err = net.Listen("unix", filepath.Join(dir, "recorder"))
	testkit.Must(t, err)
	t.Cleanup(func() { l.socket.Close() })
	go l.record()
	return l
}

// record notes the lives of commands.
func (l *load) record() {
	for {
		c, err := l.socket.Accept()
		if err != nil {
			return
		}
		go func() {
			r := bufio.NewReader(c)
			text, err := r.ReadString('\n')
			if err != nil {
				return
			}
			token, word, _ := strings.Cut(strings.TrimSpace(text), " ")
			one := &life{token: token, isAlone: word == "alone", from: time.Now()}
			l.mu.Lock()
			l.lives = append(l.lives, one)
			l.conns[token] = c
			l.mu.Unlock()
			_, _ = r.ReadByte() // its end
			l.mu.Lock()
			one.to = time.Now()
			l.mu.Unlock()
		}()
	}
}

// run starts a golock on a host. Its command lasts for some milliseconds, or, with 0, until it is told.
func (l *load) run(host int, name, token string, lasts int) *golock {
	g := &golock{host: host, token: token, done: make(chan struct{})}
	argv := l.network[host].Enter(testkit.Golock, "run", "--store", l.system.url(host), "--name", name,
		"--ttl", leaseTime.String(), "--kill-after", "1s", "--", "/proc/self/exe")
	argv[len(argv)-1], _ = os.Executable()
	c := exec.Command(argv[0], argv[1:]...)
	c.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %s %d", memberVariable, filepath.Join(l.dir, "recorder"),
		filepath.Join(l.dir, name), token, lasts))
	var stderr bytes.Buffer
	c.Stderr = &stderr
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := c.Start(); err != nil {
		l.t.Error(err)
		close(g.done)
		return g
	}
	go func() {
		_ = c.Wait()
		g.code, g.stderr = c.ProcessState.ExitCode(), stderr.String()
		l.mu.Lock()
		if g.code == 79 {
			l.lost++
		}
		l.mu.Unlock()
		close(g.done)
	}()
	return g
}

// start begins the load, and returns when the holders hold and the queue is there.
func (l *load) start() {
	for host := range hosts {
		token := fmt.Sprint("holder", host)
		l.holders = append(l.holders, l.run(host, fmt.Sprint("own", host), token, 0))
		l.await(token)
	}
	for i := range 6 {
		l.queue = append(l.queue, l.run(i%hosts, "own0", fmt.Sprint("queued", i), 20))
		testkit.Eventually(l.t, "it waits", func() bool { return l.waiting("own0") == i+1 })
	}
	for host := range hosts {
		for turn := range 2 {
			l.turns.Go(func() {
				l.repeat(func(i int) *golock {
					return l.run(host, "job", fmt.Sprintf("job%d.%d.%d", host, turn, i), 20+rand.IntN(100))
				})
			})
		}
		l.turns.Go(func() {
			l.repeat(func(i int) *golock {
				time.Sleep(200 * time.Millisecond) // the pace of starts
				token := fmt.Sprintf("free%d.%d", host, i)
				return l.run(host, token, token, 1)
			})
		})
	}
}

// repeat starts one golock after the other until the load ends.
func (l *load) repeat(start func(i int) *golock) {
	for i := 0; ; i++ {
		select {
		case <-l.ends:
			return
		default:
			<-start(i).done
		}
	}
}

// waiting counts the waiters of a lock.
func (l *load) waiting(name string) int {
	out, _ := exec.Command(testkit.Golock, "ls", name, "--json", "--store", l.system.url(-1)).Output()
	return bytes.Count(out, []byte(`"waiting"`))
}

// await waits until a command has begun.
func (l *load) await(token string) {
	testkit.Eventually(l.t, token+" has begun", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return slices.ContainsFunc(l.lives, func(one *life) bool { return one.token == token })
	})
}

// awaitCommands waits until some more commands have taken their turns.
func (l *load) awaitCommands(n int) {
	count := func() int {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.lives)
	}
	want := count() + n
	testkit.Eventually(l.t, "commands run", func() bool { return count() >= want })
}

// stop ends the load: the holders that still hold give their slots back, and the queue runs.
func (l *load) stop() {
	close(l.ends)
	l.mu.Lock()
	for _, h := range l.holders {
		_ = l.conns[h.token].Close()
	}
	l.mu.Unlock()
	for _, g := range slices.Concat(l.holders, l.queue) {
		<-g.done
	}
	l.turns.Wait()
}

// verdict is what came of a fault.
type verdict struct {
	commands, overlaps, lost int
	longest                  time.Duration // of the overlaps
	pause                    time.Duration // nobody could start, on any lock
	stuck                    time.Duration // nobody could start on a lock that all use
	overtaken                []string
}

// hostOf is the host of a waiter in the queue.
func hostOf(token string) int {
	n, _ := strconv.Atoi(strings.TrimPrefix(token, "queued"))
	return n % hosts
}

// judge looks at the lives, in the order of their beginning. Pauses are those that end after the fault has
// begun. A waiter that was cut off may have lost its place.
func (l *load) judge(began time.Time, cutOff []int) (v verdict) {
	l.mu.Lock()
	defer l.mu.Unlock()
	v.commands, v.lost = len(l.lives), l.lost
	for _, one := range l.lives {
		if one.isAlone {
			continue
		}
		v.overlaps++
		for _, other := range l.lives {
			if other != one && other.from.Before(one.to) && one.from.Before(other.to) && lockOf(other) == lockOf(one) {
				v.longest = max(v.longest, earlier(one.to, other.to).Sub(later(one.from, other.from)))
			}
		}
	}
	v.pause, v.stuck = l.pause("free", began), l.pause("job", began)
	last := ""
	for _, one := range l.lives {
		if !strings.HasPrefix(one.token, "queued") || slices.Contains(cutOff, hostOf(one.token)) {
			continue
		}
		if one.token < last {
			v.overtaken = append(v.overtaken, one.token+" ran after "+last)
		}
		last = one.token
	}
	return v
}

// pause is the longest time between the end of one of some commands and the start of the next.
func (l *load) pause(prefix string, began time.Time) (longest time.Duration) {
	var last *life
	for _, one := range l.lives {
		if !strings.HasPrefix(one.token, prefix) {
			continue
		}
		if last != nil && one.from.After(began) {
			longest = max(longest, one.from.Sub(last.to))
		}
		last = one
	}
	return longest
}

// lockOf is the lock of a command.
func lockOf(one *life) string {
	switch {
	case strings.HasPrefix(one.token, "job"):
		return "job"
	case strings.HasPrefix(one.token, "free"):
		return one.token
	case strings.HasPrefix(one.token, "holder"):
		return "own" + strings.TrimPrefix(one.token, "holder")
	}
	return "own0"
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
