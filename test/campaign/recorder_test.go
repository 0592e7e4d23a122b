package campaign_test

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// This file pins nothing. The recorder hears from the commands by a socket of
// which golock knows nothing. What they say is believed of their beginning;
// their end is seen: the kernel closes the connection of a process that dies.

const parts = 8 // of a run, at most; as in member.c

type recorder struct {
	socket   string
	listener *net.UnixListener

	mu      sync.Mutex
	lives   []*life
	pidfds  map[*life]int
	watch   []chan int // who wants to know which command says that it ends
	trouble []string
	open    sync.WaitGroup
}

func newRecorder(socket string) (*recorder, error) {
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: socket, Net: "unixpacket"})
	if err != nil {
		return nil, err
	}
	r := &recorder{socket: socket, listener: l, pidfds: map[*life]int{}}
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
		if n == 0 || err != nil {
			if l != nil {
				r.mu.Lock()
				l.to = at
				if fd, ok := r.pidfds[l]; ok {
					unix.Close(fd)
					delete(r.pidfds, l)
				}
				r.mu.Unlock()
			}
			return
		}
		field := strings.Fields(string(b[:n]))
		switch {
		case field[0] == "b" && len(field) == 8 && l == nil:
			l = begun(field)
			r.mu.Lock()
			r.lives = append(r.lives, l)
			if fd, err := unix.PidfdOpen(l.pid, 0); err == nil {
				if alive(c) { // so it is that process, and no later one of its number
					r.pidfds[l] = fd
				} else {
					unix.Close(fd)
				}
			}
			r.mu.Unlock()
		case field[0] == "e" && len(field) == 5 && l != nil:
			r.mu.Lock()
			l.bye, _ = strconv.ParseInt(field[3], 10, 64)
			l.code, _ = strconv.Atoi(field[4])
			if l.part == 0 {
				for _, w := range r.watch {
					select {
					case w <- l.token:
					default:
					}
				}
			}
			r.mu.Unlock()
		default:
			r.mu.Lock()
			r.trouble = append(r.trouble, fmt.Sprintf("%q", b[:n]))
			r.mu.Unlock()
		}
	}
}

func begun(field []string) *life {
	number := func(text string) int64 {
		n, _ := strconv.ParseInt(text, 10, 64)
		return n
	}
	l := &life{lifeID: lifeID{int(number(field[1])), int(number(field[2]))}, pid: int(number(field[3])), from: number(field[4]), fence: number(field[5])}
	if field[6] != "-" {
		for _, s := range strings.Split(field[6], ",") {
			l.slots = append(l.slots, int(number(s)))
		}
	}
	if field[7] != "-" {
		for _, s := range strings.Split(field[7], ",") {
			l.saw = append(l.saw, lifeID{int(number(s)) / parts, int(number(s)) % parts})
		}
	}
	return l
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
	fd, ok := r.pidfds[l]
	return ok && unix.PidfdSendSignal(fd, sig, nil, 0) == nil
}

// ending gives the next command that says that it ends.
func (r *recorder) ending(patience time.Duration) (token int, ok bool) {
	w := make(chan int, 1)
	r.mu.Lock()
	r.watch = append(r.watch, w)
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		for i, o := range r.watch {
			if o == w {
				r.watch = append(r.watch[:i], r.watch[i+1:]...)
				break
			}
		}
	}()
	select {
	case token = <-w:
		return token, true
	case <-time.After(patience):
		return 0, false
	}
}

// living counts the processes that have not ended.
func (r *recorder) living() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.lives {
		if l.to == 0 {
			n++
		}
	}
	return n
}

// close returns when nothing is heard any more: the processes that still live
// end when they lose the recorder.
func (r *recorder) close() {
	r.listener.Close()
	r.mu.Lock()
	for _, fd := range r.pidfds {
		_ = unix.PidfdSendSignal(fd, unix.SIGCONT, nil, 0)
		_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	}
	r.mu.Unlock()
	r.open.Wait()
}

func monotonic() moment {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return ts.Nano()
}

// wallAhead is by how much the wall clock is ahead of the monotonic one.
func wallAhead() int64 {
	return time.Now().UnixNano() - monotonic()
}
