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

// The load is these golocks on each host:
//   - one holds a lock of that host (own0, own1, own2) until the load ends;
//   - two at a time take turns with those of all hosts on one lock (job);
//   - one at a time takes a lock that no other golock uses (free).
//
// Besides, waiters of all hosts queue behind the holder of own0, and one of another host behind each other holder.

// member is the command of all golocks. It locks a file, and tells the recorder whether it is alone or another
// command has locked the file. It ends when its time is over.
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
		_, _ = io.Copy(io.Discard, c) // returns when the recorder closes the connection
	}
	time.Sleep(time.Duration(lasts) * time.Millisecond) // the work
	return 0
}

// memberVariable makes the test binary a member.
const memberVariable = "LOCKTEST_MEMBER"

// life is the time in which a command ran. It ends when the kernel closes the command's connection to the recorder.
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
	ends    chan struct{} // closed when the load ends

	mu    sync.Mutex // guards the fields below
	lives []*life
	conns map[string]net.Conn // the connections of commands to the recorder, by token
	lost  int                 // the number of runs that lost their slots
}

// golock is a golock run. code and stderr are known when done is closed.
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

// record notes the lives of commands, until the socket is closed.
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
			_, _ = r.ReadByte() // returns when the command has ended
			l.mu.Lock()
			one.to = time.Now()
			l.mu.Unlock()
		}()
	}
}

// run starts a golock on a host. lasts is the time of its command in milliseconds; with 0 the command runs until
// stop closes its connection.
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

// start begins the load. It returns when the holders have their slots and all waiters have queued.
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
	for host := 1; host < hosts; host++ {
		name := fmt.Sprint("own", host)
		l.queue = append(l.queue, l.run((host+1)%hosts, name, fmt.Sprint("next", host), 20))
		testkit.Eventually(l.t, "it waits", func() bool { return l.waiting(name) == 1 })
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

// waiting returns the number of waiters of a lock.
func (l *load) waiting(name string) int {
	out, _ := exec.Command(testkit.Golock, "ls", name, "--json", "--store", l.system.url(-1)).Output()
	return bytes.Count(out, []byte(`"waiting"`))
}

// await waits until the command with a token has begun.
func (l *load) await(token string) {
	testkit.Eventually(l.t, token+" has begun", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return slices.ContainsFunc(l.lives, func(one *life) bool { return one.token == token })
	})
}

// awaitCommands waits until n more commands have begun.
func (l *load) awaitCommands(n int) {
	count := func() int {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.lives)
	}
	want := count() + n
	testkit.Eventually(l.t, "commands run", func() bool { return count() >= want })
}

// stop ends the load. The holders that still have slots give them back, and the waiters run.
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

// verdict is the result of a fault.
type verdict struct {
	commands, overlaps, lost int
	longest                  time.Duration // the longest overlap
	pause                    time.Duration // the longest time in which no golock got a lock that no other uses
	stuck                    time.Duration // the longest time in which no golock got the lock that all hosts use
	overtaken                []string      // the waiters that ran after one that was behind them
}

// hostOf returns the host of a waiter in the queue.
func hostOf(token string) int {
	n, _ := strconv.Atoi(strings.TrimPrefix(token, "queued"))
	return n % hosts
}

// judge makes the verdict from the lives, which are in the order in which the commands began. It counts pauses
// that ended after the fault had begun. A waiter on a host in cutOff may have lost its place, so it is not
// checked.
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

// pause returns the longest time between the end of a command and the start of the next one, among the commands
// whose tokens have the prefix.
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

// lockOf returns the name of the lock of a command.
func lockOf(one *life) string {
	switch {
	case strings.HasPrefix(one.token, "job"):
		return "job"
	case strings.HasPrefix(one.token, "free"):
		return one.token
	case strings.HasPrefix(one.token, "holder"):
		return "own" + strings.TrimPrefix(one.token, "holder")
	case strings.HasPrefix(one.token, "next"):
		return "own" + strings.TrimPrefix(one.token, "next")
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
