//go:build integration

package campaign_test

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"golock/internal/procfs"
	"golock/test/testkit"
)

// The recorder receives messages of the commands over a socket that golock does not know. They come
// some time after the event, so their order does not show which commands were alive together: the
// locked bytes of LIVES do (testdata/member.c).

const parts = 8 // bytes of a run; as in member.c

type recorder struct {
	socket   string
	listener *net.UnixListener
	ending   chan int // tells who listens which command says that it ends
	open     sync.WaitGroup

	mu    sync.Mutex
	lives []*life
}

func newRecorder(t *testing.T, socket string) *recorder {
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: socket, Net: "unixpacket"})
	testkit.Must(t, err)
	r := &recorder{socket: socket, listener: l, ending: make(chan int)}
	r.open.Go(func() {
		for {
			c, err := l.AcceptUnix()
			if err != nil {
				return
			}
			r.open.Go(func() { r.hear(c) })
		}
	})
	return r
}

// hear listens to one process until its end.
func (r *recorder) hear(c *net.UnixConn) {
	defer c.Close()
	var l *life
	b := make([]byte, 8192)
	for {
		n, err := c.Read(b)
		at, text := monotonic(), string(b[:n])
		r.mu.Lock()
		switch {
		case n == 0 || err != nil:
			if l != nil {
				l.to = at
				_ = l.process.Release()
			}
			r.mu.Unlock()
			return
		case l == nil:
			l, err = begun(text)
			l.conn = c
			r.lives = append(r.lives, l)
		default:
			_, err = fmt.Sscanf(text, "e %d %d", &l.bye, &l.code)
			if l.part == 0 {
				select {
				case r.ending <- l.token:
				default:
				}
			}
		}
		r.mu.Unlock()
		if err != nil {
			panic(fmt.Sprintf("a command says %q: %v", text, err))
		}
	}
}

func begun(text string) (*life, error) {
	l := &life{}
	var slots, saw string
	_, err := fmt.Sscanf(text, "b %d %d %d %d %d %d %s %s",
		&l.token, &l.part, &l.pid, &l.from, &l.looked, &l.fence, &slots, &saw)
	numbers := func(text string) (list []int) {
		for s := range strings.SplitSeq(text, ",") {
			if n, err := strconv.Atoi(s); err == nil {
				list = append(list, n)
			}
		}
		return list
	}
	if err == nil {
		l.process, err = os.FindProcess(l.pid)
	}
	if err == nil && procfs.Status(l.pid, "Name") != "member" { // it may be a later process of that number
		err = l.process.Release()
	}
	l.slots = numbers(slots)
	for _, at := range numbers(saw) {
		l.saw = append(l.saw, lifeID{at / parts, at % parts})
	}
	return l, err
}

// living gives the parts of a run whose bytes are locked.
func living(lives string, token int) (list []int) {
	f, err := os.OpenFile(lives, os.O_RDWR, 0)
	if err != nil {
		return nil // no command has begun yet
	}
	defer f.Close()
	for part := range parts {
		l := unix.Flock_t{Type: unix.F_WRLCK, Start: int64(token*parts + part), Len: 1}
		if unix.FcntlFlock(f.Fd(), unix.F_GETLK, &l) == nil && l.Type != unix.F_UNLCK {
			list = append(list, part)
		}
	}
	return list
}

// commands are those that live, by the token of their run.
func (r *recorder) commands() map[int]*os.Process {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := map[int]*os.Process{}
	for _, l := range r.lives {
		if l.part == 0 && l.bye == 0 && l.to == 0 {
			list[l.token] = l.process
		}
	}
	return list
}

// running are the processes of which no end was heard.
func (r *recorder) running() (list []*life) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.lives {
		if l.to == 0 {
			list = append(list, l)
		}
	}
	return list
}

// close returns when nothing is heard any more.
func (r *recorder) close() {
	r.listener.Close()
	for _, l := range r.running() {
		_ = l.process.Signal(unix.SIGCONT)
		_ = l.process.Kill()
	}
	r.open.Wait()
}

func monotonic() moment {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return ts.Nano()
}
