//go:build integration

package campaign_test

import (
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// This file pins nothing. The recorder hears from the commands by a socket of
// which golock knows nothing. It is told of beginnings and ends some time after
// they happened, so its order says nothing about who lived together: the bytes of
// LIVES do (testdata/member.c).

const parts = 8 // bytes of a run; as in member.c

type recorder struct {
	socket   string
	listener *net.UnixListener
	ending   chan int // tells who listens which command says that it ends
	open     sync.WaitGroup

	mu      sync.Mutex
	lives   []*life
	peers   map[*life]*peer // those that have not ended
	trouble []string
}

type peer struct {
	conn  *net.UnixConn
	pidfd int // -1: none
}

func newRecorder(socket string) (*recorder, error) {
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: socket, Net: "unixpacket"})
	if err != nil {
		return nil, err
	}
	r := &recorder{socket: socket, listener: l, ending: make(chan int), peers: map[*life]*peer{}}
	r.open.Go(func() {
		for {
			c, err := l.AcceptUnix()
			if err != nil {
				return
			}
			r.open.Go(func() { r.hear(c) })
		}
	})
	return r, nil
}

// hear listens to one process until its end.
func (r *recorder) hear(c *net.UnixConn) {
	defer c.Close()
	var l *life
	b := make([]byte, 8192)
	for {
		n, err := c.Read(b)
		at := monotonic()
		r.mu.Lock()
		switch {
		case n == 0 || err != nil:
			if l != nil {
				l.to = at
				if fd := r.peers[l].pidfd; fd >= 0 {
					unix.Close(fd)
				}
				delete(r.peers, l)
			}
			r.mu.Unlock()
			return
		case l == nil:
			if l, err = begun(string(b[:n])); err == nil {
				r.lives, r.peers[l] = append(r.lives, l), newPeer(c, l.pid)
			}
		default:
			_, err = fmt.Sscanf(string(b[:n]), "e %d %d", &l.bye, &l.code)
			if l.part == 0 {
				select {
				case r.ending <- l.token:
				default:
				}
			}
		}
		if err != nil {
			r.trouble = append(r.trouble, fmt.Sprintf("%q: %v", b[:n], err))
		}
		r.mu.Unlock()
	}
}

func newPeer(c *net.UnixConn, pid int) *peer {
	fd, err := unix.PidfdOpen(pid, 0)
	if err == nil && !alive(c) { // it may be a later process of that number
		unix.Close(fd)
		fd = -1
	}
	return &peer{c, fd}
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

// alive reports whether the other end of a connection is open.
func alive(c *net.UnixConn) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	open := false
	_ = raw.Control(func(fd uintptr) {
		ready := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		_, err := unix.Poll(ready, 0)
		open = err == nil && ready[0].Revents&(unix.POLLHUP|unix.POLLRDHUP) == 0
	})
	return open
}

// commands are those that live and belong to one of the runs.
func (r *recorder) commands(of func(token int) bool) (list []*life) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.lives {
		if l.part == 0 && l.to == 0 && l.bye == 0 && of(l.token) {
			list = append(list, l)
		}
	}
	return list
}

// signal signals a process, and reports whether it was there.
func (r *recorder) signal(l *life, sig syscall.Signal) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.peers[l]
	return p != nil && unix.PidfdSendSignal(p.pidfd, sig, nil, 0) == nil
}

// running are the processes of which no end was heard.
func (r *recorder) running() (list []*life) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Keys(r.peers))
}

// end ends a process that nobody needs any more.
func (r *recorder) end(l *life) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.peers[l]; p != nil {
		_ = p.conn.CloseWrite()
	}
}

// close returns when nothing is heard any more.
func (r *recorder) close() {
	r.listener.Close()
	for _, l := range r.running() {
		r.signal(l, unix.SIGCONT)
		r.signal(l, unix.SIGKILL)
	}
	r.open.Wait()
}

func monotonic() moment {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return ts.Nano()
}
